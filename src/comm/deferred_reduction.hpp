#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <optional>

#include "lockstep/comm/process_group.hpp"

namespace lockstep::comm {

/// An all-reduce of a few values of the host, which reads the result later. On a GPU it runs on a stream of
/// its own: result() waits for the collectives of the group before it, not for what the device computes.
class DeferredReduction {
 public:
  explicit DeferredReduction(const ProcessGroup& group) : group_(group) {}

  /// `values`: on the CPU. *Collective*.
  void start(const at::Tensor& values, ReduceOp op);
  bool is_started() const noexcept { return work_ || copied_; }
  /// On the CPU. Throws CommunicationError if a peer is lost.
  at::Tensor result();

 private:
  ProcessGroup group_;
  std::optional<Work> work_;
  at::Tensor values_;
  /// Of a GPU: page-locked memory for the result, and the end of the copy into it.
  std::optional<c10::Stream> stream_;
  std::optional<c10::Event> copied_;
  at::Tensor host_;
};

}  // namespace lockstep::comm
