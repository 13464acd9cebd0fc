#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "lockstep/comm/process_group.hpp"

namespace lockstep::train {

/// Whether any rank wants to stop, with the same answer on every rank.
///
/// Each call starts an exchange that runs while the next step computes, and takes the result of the one
/// before: a wish is heard one step later, and nobody waits for the network at the step's end.
class StopAgreement {
 public:
  explicit StopAgreement(const ProcessGroup& group);

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
