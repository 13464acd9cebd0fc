#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.hpp"

namespace lockstep {

/// Gradients of this rank that are complete and travel together. A copy refers to the same memory.
struct GradientBucket {
  /// Counts the buckets of one backward from 0, in the order in which they are sent.
  std::size_t index = 0;
  bool is_last = false;
  /// All gradients behind each other, in one dimension: sums of this rank, divided by nothing yet.
  at::Tensor buffer;
  /// The parts of `buffer`, each in its parameter's shape, and those parameters.
  std::vector<at::Tensor> gradients;
  std::vector<at::Tensor> parameters;
};

/// Waits for what start() has begun, and gives what the gradients of the bucket become: as many elements as
/// its buffer, on the same device; the buffer itself spares a copy.
using FinishBucket = std::function<at::Tensor()>;

/// How DistributedDataParallel averages gradients over the ranks: derive from it to send them another way
/// than by a plain all-reduce. The ready-made ones are in comm_hooks.hpp, power_sgd.hpp and local_sgd.hpp.
///
///     struct HalfHook : lockstep::CommHook {
///       std::string name() const override { return "half"; }
///       lockstep::FinishBucket start(const lockstep::GradientBucket& bucket,
///                                    const lockstep::ProcessGroup& group) override {
///         const at::Tensor half = bucket.buffer.to(at::kHalf).div_(group.size());
///         return [=, work = group.all_reduce_async(half)]() mutable {
///           work.wait();
///           return bucket.buffer.copy_(half);
///         };
///       }
///     };
///     ddp.register_comm_hook(std::make_shared<HalfHook>());
///
/// One hook serves one wrapper and is never called by two threads at once. An exception that it throws comes
/// out of backward.
class CommHook {
 public:
  virtual ~CommHook() = default;

  /// Names the hook and its settings: every rank must register the same.
  virtual std::string name() const = 0;

  /// Called while backward goes on, as soon as a bucket is complete, for the buckets in order. It should
  /// begin the transfer and return; what it returns is called when backward has ended, again in order. Both
  /// may start collectives of `group`, the wrapper's own, since all ranks come through here in this order.
  virtual FinishBucket start(const GradientBucket& bucket, const ProcessGroup& group) = 0;

  /// From now on the numbers of buckets mean other gradients: what is kept for a bucket must be forgotten.
  /// Happens after the first backward, in which the order of the gradients is learnt.
  virtual void buckets_changed() {}
};

}  // namespace lockstep
