#pragma once

#include <ATen/core/Tensor.h>
#include <cstdint>
#include <optional>

#include "../comm/deferred_reduction.hpp"
#include "lockstep/comm/process_group.hpp"
#include "lockstep/train/accelerator.hpp"
#include "prepared_objects.hpp"

namespace lockstep::train {

/// Whether any rank wants to stop; the answer is the same on every rank.
///
/// Each call starts an all-reduce that runs while the next step computes, and returns the result of the
/// previous call. A stop request therefore takes effect one step later, and no rank waits for the network or
/// its device at the end of a step.
class PreemptionSync {
 public:
  explicit PreemptionSync(const ProcessGroup& group) : group_(group), exchange_(group) {}

  /// Returns true from the call after the one in which a rank passed `wanted`; with one rank, immediately.
  /// Stays true. *Collective*. Throws CommunicationError if a peer is lost.
  bool ask(bool wanted);

 private:
  ProcessGroup group_;
  comm::DeferredReduction exchange_;
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
  train::PreparedObjects prepared;
  train::PreemptionSync stop_agreement;
  bool stop_requested = false;
  std::shared_ptr<StateHookHandle::Hooks> save_hooks = std::make_shared<StateHookHandle::Hooks>();
  std::shared_ptr<StateHookHandle::Hooks> load_hooks = std::make_shared<StateHookHandle::Hooks>();
  /// Destroyed first: it may still be writing.
  train::CheckpointWriter writer;
};

}  // namespace lockstep
