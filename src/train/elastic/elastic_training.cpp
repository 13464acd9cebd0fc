#include "train/elastic/elastic_training.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "comm/group_observer.hpp"
#include "lockstep/core/error.hpp"
#include "train/accumulation_window.hpp"
#include "train/elastic/step_seed.hpp"
#include "train/prepared_objects.hpp"
#include "train/training_scope.hpp"

namespace lockstep::train {
namespace {

using elastic::HeldState;
using nlohmann::json;

std::string describe(const HeldState& held) {
  if (held.kind == HeldState::Kind::none) return "has no state";
  return fmt::format("is {} step {}",
                     held.kind == HeldState::Kind::clean ? "at" : "in the middle of the update of",
                     held.step);
}

std::vector<at::Tensor> buffers_of(const std::vector<PreparedModel>& models) {
  std::vector<at::Tensor> buffers;
  for (const auto& model : models) {
    if (model.wrapped.ddp() == nullptr) continue;
    for (const auto& entry : model.wrapped.ddp()->buffers()) buffers.push_back(entry.tensor);
  }
  return buffers;
}

}  // namespace

int choose_source(const std::vector<HeldState>& all) {
  int source = -1;
  std::uint64_t oldest = UINT64_MAX;
  std::string text;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const HeldState& held = all[rank];
    text += fmt::format("{}rank {} {}", rank == 0 ? "" : ", ", rank, describe(held));
    if (held.kind != HeldState::Kind::clean) continue;
    oldest = std::min(oldest, held.step);
    if (source < 0 || held.step > all[static_cast<std::size_t>(source)].step) source = static_cast<int>(rank);
  }
  if (source < 0) {
    throw Error("no rank holds a whole state (" + text +
                "): load a checkpoint, and commit a step before anything else that communicates");
  }
  if (all[static_cast<std::size_t>(source)].step - oldest > 1)
    throw Error("the ranks' states are more than a step apart (" + text +
                "): each step must contain a collective of all ranks");
  return source;
}

void ElasticTraining::begin(std::uint64_t step) {
  const auto& prepared = TrainingScope::prepared_of(accelerator_);
  if (!kept_) {
    kept_.emplace(KeptState::Parts{.buffers = buffers_of(prepared.models()),
                                   .loaders = prepared.loaders(),
                                   .schedulers = prepared.schedulers(),
                                   .optimizers = prepared.optimizers()});
  }
  step_ = step;
  updates_.mark();
  kept_->keep();
  seed_step(accelerator_.device(), seed_, step_, accelerator_.process_index());
}

void ElasticTraining::commit() { begin(step_ + 1); }

HeldState ElasticTraining::held() const {
  return {.kind = updates_.has_stepped() ? HeldState::Kind::torn : HeldState::Kind::clean, .step = step_};
}

void ElasticTraining::recover(std::uint64_t generation) {
  const HeldState own = held();
  accelerator_.process_group().reform(generation);
  if (own.kind == HeldState::Kind::clean) undo_step();
  exchange(own);
}

void ElasticTraining::undo_step() {
  if (kept_) kept_->restore();
}

void ElasticTraining::join() {
  accelerator_.process_group().reform();
  exchange({});
  comm::take_part(accelerator_.process_group());
}

void ElasticTraining::exchange(HeldState own) {
  const auto& group = accelerator_.process_group();
  std::vector<HeldState> all;
  for (const json& one : group.all_gather_object(json{static_cast<int>(own.kind), own.step}))
    all.push_back({.kind = static_cast<HeldState::Kind>(one.at(0).get<int>()), .step = one.at(1)});
  const auto source = static_cast<std::size_t>(choose_source(all));
  const bool differ = std::ranges::any_of(all, [&](const HeldState& held) { return !(held == all[source]); });
  take_state_of(static_cast<int>(source), all[source].step, differ);
}

void ElasticTraining::take_state_of(int source, std::uint64_t step, bool any_receives) {
  if (any_receives) {
    TrainingScope::prepared_of(accelerator_)
        .state(TrainingScope::window_of(accelerator_).scaling())
        .give(accelerator_, source);
  }
  begin(step);
}

}  // namespace lockstep::train
