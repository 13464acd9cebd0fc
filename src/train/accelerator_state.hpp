#pragma once

#include <cstdint>

#include "lockstep/train/accelerator.hpp"
#include "stop_agreement.hpp"
#include "training_state.hpp"

namespace lockstep {

struct Accelerator::State {
  State(const World& the_world, const ProcessGroup& the_group, const AcceleratorOptions& the_options)
      : world(the_world),
        options(the_options),
        group(the_group),
        store(the_group.new_namespace()),
        stop_agreement(the_group) {}

  World world;
  AcceleratorOptions options;
  ProcessGroup group;
  Store store;
  std::int64_t main_first = 0;
  std::int64_t local_main_first = 0;
  train::TrainingState training;
  train::StopAgreement stop_agreement;
  bool stop_requested = false;
  std::shared_ptr<StateHookHandle::Hooks> save_hooks = std::make_shared<StateHookHandle::Hooks>();
  std::shared_ptr<StateHookHandle::Hooks> load_hooks = std::make_shared<StateHookHandle::Hooks>();
  /// Ends first: it may still be writing.
  train::CheckpointWriter writer;
};

}  // namespace lockstep
