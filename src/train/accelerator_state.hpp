#pragma once

#include <ATen/core/Tensor.h>
#include <cstdint>
#include <optional>

#include "lockstep/comm/process_group.hpp"
#include "lockstep/train/accelerator.hpp"
#include "training_state.hpp"

namespace lockstep::train {

/// Whether any rank wants to stop, with the same answer on every rank.
///
/// Each call starts an exchange that runs while the next step computes, and takes the result of the one
/// before: stop requests take effect one step later, and nobody waits for the network at the step's end.
class PreemptionSync {
 public:
  explicit PreemptionSync(const ProcessGroup& group);

  /// True from the second call on after a rank has said `wanted`; in a world of one at once. Stays true.
  /// *Collective*. Throws CommunicationError when a peer is lost.
  bool ask(bool wanted);

 private:
  void take_result();

  ProcessGroup group_;
  at::Tensor flag_;
  std::optional<Work> exchange_;
  bool agreed_ = false;
};

}  // namespace lockstep::train

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
  train::PreemptionSync stop_agreement;
  bool stop_requested = false;
  std::shared_ptr<StateHookHandle::Hooks> save_hooks = std::make_shared<StateHookHandle::Hooks>();
  std::shared_ptr<StateHookHandle::Hooks> load_hooks = std::make_shared<StateHookHandle::Hooks>();
  /// Ends first: it may still be writing.
  train::CheckpointWriter writer;
};

}  // namespace lockstep
