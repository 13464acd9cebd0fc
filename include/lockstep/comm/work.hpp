#pragma once

#include <memory>

namespace lockstep {

/// A collective in flight. Its tensors must stay alive and unchanged until `wait()` returns. Copies refer to
/// the same operation. A Work that is destroyed without `wait()` still runs, but its failure is lost.
/// Averages on the CPU and all_to_all of lists are completed only by `wait()`.
class Work {
 public:
  class Impl;

  /// Wraps an operation; for internal use.
  explicit Work(std::shared_ptr<Impl> impl);

  /// Blocks until the result is available. Throws TimeoutError if the group's timeout passed,
  /// CommunicationError if a peer was lost; the message names this rank, the operation, its number in the
  /// group and its size. On NCCL the current stream waits, not the host, and none of these is thrown: c10d's
  /// watchdog ends the process instead (unless TORCH_NCCL_BLOCKING_WAIT is set). Any thread may call it; a
  /// second call returns immediately. *Local*.
  void wait();

  /// Whether the operation has ended, successfully or not, so that `wait()` does not block. *Local*.
  bool is_completed() const;

  /// The rank that a `recv_any_source` received from, after `wait()`. *Local*.
  int source_rank() const;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace lockstep
