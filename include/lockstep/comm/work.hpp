#pragma once

#include <memory>

namespace lockstep {

/// A collective in flight. Its tensors must stay alive and untouched until `wait()` returns.
/// A copy is a handle on the same operation. A Work that is dropped without `wait()` still runs, but its
/// failure goes unseen; and averages on the CPU and all_to_all of lists are finished by `wait()` only.
class Work {
 public:
  class Impl;

  /// For the library: wraps the operation.
  explicit Work(std::shared_ptr<Impl> impl);

  /// Blocks until the result is there. Throws TimeoutError when the group's timeout passed,
  /// CommunicationError when a peer was lost; the text names this rank, the operation, its number in the
  /// group and its size. On NCCL the current stream waits, not the host, and none of that is thrown: c10d's
  /// watchdog ends the process instead (unless TORCH_NCCL_BLOCKING_WAIT is set). Any thread may call it; a
  /// second call returns at once. *Local*.
  void wait();

  /// Whether the transfer has ended, well or badly, so that `wait()` does not block. *Local*.
  bool is_completed() const;

  /// The rank that a `recv_any_source` received from, after `wait()`. *Local*.
  int source_rank() const;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace lockstep
