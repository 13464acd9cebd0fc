#include "lockstep/train/process_execution.hpp"

#include <ATen/ATen.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "comm/group_observer.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/progress_bar.hpp"
#include "lockstep/train/determinism.hpp"
#include "train/broadcast_tensors.hpp"
#include "train/named_barrier.hpp"
#include "train/released_place.hpp"

namespace lockstep {

struct ProcessExecution::State final : comm::GroupObserver {
  State(const World& the_world, const ProcessGroup& the_group, std::chrono::milliseconds the_barrier_warning)
      : world(the_world),
        group(the_group),
        store(the_group.new_namespace()),
        barrier_warning(the_barrier_warning),
        barrier(store.with_prefix("named_barrier"), the_group, the_barrier_warning) {}

  void release() override {}
  void reseat() override {
    store = group.new_namespace();
    barrier = train::NamedBarrier(store.with_prefix("named_barrier"), group, barrier_warning);
    runs = 0;
  }

  World world;
  ProcessGroup group;
  Store store;
  std::chrono::milliseconds barrier_warning;
  train::NamedBarrier barrier;
  std::int64_t runs = 0;
  bool trigger = false;
};

ProcessExecution::ProcessExecution(const World& world, const ProcessGroup& group,
                                   std::chrono::milliseconds barrier_warning)
    : state_(std::make_shared<State>(world, group, barrier_warning)) {
  comm::observe(group, state_);
}

int ProcessExecution::rank_of_this() const noexcept { return state_->world.rank; }
int ProcessExecution::local_rank_of_this() const noexcept { return state_->world.local_rank; }
int ProcessExecution::size_of_world() const noexcept { return state_->world.world_size; }

MainProcessFirst ProcessExecution::first_of_run() const {
  if (comm::is_newcomer(state_->group)) return train::released_place(state_->world.rank);
  return {state_->store,
          {.name = "on_main_process #" + std::to_string(++state_->runs),
           .rank = state_->world.rank,
           .main_rank = 0,
           .members = state_->world.world_size,
           .timeout = state_->group.timeout()}};
}

std::string ProcessExecution::shared(const std::string* value) const {
  return state_->group.broadcast_object(value == nullptr ? std::string() : *value);
}

nlohmann::json ProcessExecution::shared(const nlohmann::json* value) const {
  return state_->group.broadcast_object(value == nullptr ? nlohmann::json() : *value);
}

at::Tensor ProcessExecution::shared(const at::Tensor* value) const {
  TensorMap tensors;
  if (value != nullptr) tensors.emplace("value", *value);
  return train::broadcast_tensors(state_->group, tensors).at("value");
}

TensorMap ProcessExecution::shared(const TensorMap* value) const {
  return train::broadcast_tensors(state_->group, value == nullptr ? TensorMap{} : *value);
}

void ProcessExecution::write_out(const std::string& line) {
  ProgressBar::clear_line();
  std::cout << line << std::flush;
}

void ProcessExecution::set_trigger() { state_->trigger = true; }

bool ProcessExecution::check_trigger() {
  const bool mine = std::exchange(state_->trigger, false);
  if (state_->group.size() == 1) return mine;
  const auto options = at::TensorOptions(state_->group.object_device()).dtype(at::kInt);
  const at::Tensor flag = at::full({1}, mine ? 1 : 0, options);
  state_->group.all_reduce(flag, ReduceOp::max);
  return flag.item<int>() != 0;
}

void ProcessExecution::set_seed(std::uint64_t seed, bool device_specific, bool deterministic) {
  at::manual_seed(seed + (device_specific ? static_cast<std::uint64_t>(rank_of_this()) : 0));
  if (deterministic) use_deterministic_operations();
}

void ProcessExecution::wait_for_everyone_at(const std::string& name) const {
  if (!comm::is_newcomer(state_->group)) state_->barrier.wait(name);
}

void ProcessExecution::report_failure(const std::string& text) const { state_->barrier.report_failure(text); }

}  // namespace lockstep
