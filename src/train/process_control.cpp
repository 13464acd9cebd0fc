#include "lockstep/train/process_control.hpp"

#include <ATen/ATen.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "broadcast_tensors.hpp"
#include "lockstep/train/determinism.hpp"
#include "meetings.hpp"

namespace lockstep {

struct ProcessControl::State {
  State(const World& the_world, const ProcessGroup& the_group, std::chrono::milliseconds barrier_warning)
      : world(the_world),
        group(the_group),
        store(the_group.new_namespace()),
        meetings(store.with_prefix("meetings"), {.rank = the_group.rank(),
                                                 .size = the_group.size(),
                                                 .warn_after = barrier_warning,
                                                 .timeout = the_group.timeout()}) {}

  World world;
  ProcessGroup group;
  Store store;
  train::Meetings meetings;
  std::int64_t runs = 0;
  bool trigger = false;
};

ProcessControl::ProcessControl(const World& world, const ProcessGroup& group,
                               std::chrono::milliseconds barrier_warning)
    : state_(std::make_shared<State>(world, group, barrier_warning)) {}

int ProcessControl::rank_of_this() const noexcept { return state_->world.rank; }
int ProcessControl::local_rank_of_this() const noexcept { return state_->world.local_rank; }
int ProcessControl::size_of_world() const noexcept { return state_->world.world_size; }

MainProcessFirst ProcessControl::first_of_run() const {
  return {state_->store,
          {.name = "run_on_main #" + std::to_string(++state_->runs),
           .rank = state_->world.rank,
           .main_rank = 0,
           .members = state_->world.world_size,
           .timeout = state_->group.timeout()}};
}

std::string ProcessControl::shared(const std::string* value) const {
  return state_->group.broadcast_object(value == nullptr ? std::string() : *value);
}

nlohmann::json ProcessControl::shared(const nlohmann::json* value) const {
  return state_->group.broadcast_object(value == nullptr ? nlohmann::json() : *value);
}

at::Tensor ProcessControl::shared(const at::Tensor* value) const {
  TensorMap tensors;
  if (value != nullptr) tensors.emplace("value", *value);
  return train::broadcast_tensors(state_->group, tensors).at("value");
}

TensorMap ProcessControl::shared(const TensorMap* value) const {
  return train::broadcast_tensors(state_->group, value == nullptr ? TensorMap{} : *value);
}

void ProcessControl::write_out(const std::string& line) { std::cout << line << std::flush; }

void ProcessControl::set_trigger() const { state_->trigger = true; }

bool ProcessControl::check_trigger() const {
  const bool mine = std::exchange(state_->trigger, false);
  if (state_->group.size() == 1) return mine;
  const auto options = at::TensorOptions(state_->group.object_device()).dtype(at::kInt);
  const at::Tensor flag = at::full({1}, mine ? 1 : 0, options);
  state_->group.all_reduce(flag, ReduceOp::max);
  return flag.item<int>() != 0;
}

void ProcessControl::set_seed(std::uint64_t seed, bool device_specific, bool deterministic) const {
  at::manual_seed(seed + (device_specific ? static_cast<std::uint64_t>(rank_of_this()) : 0));
  if (deterministic) use_deterministic_operations();
}

void ProcessControl::wait_for_everyone_at(const std::string& name) const { state_->meetings.wait(name); }

void ProcessControl::report_failure(const std::string& text) const { state_->meetings.report_failure(text); }

}  // namespace lockstep
