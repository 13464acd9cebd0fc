#pragma once

#include "comm/deferred_reduction.hpp"
#include "lockstep/comm/process_group.hpp"

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
