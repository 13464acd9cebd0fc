#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.hpp"

namespace lockstep {

/// Gradients of this rank that are complete and are sent together. A copy refers to the same memory.
struct GradientBucket {
  /// Number of the bucket in this backward, from 0, in the order of sending.
  std::size_t index = 0;
  bool is_last = false;
  /// All gradients concatenated, in one dimension: this rank's sums, not yet divided.
  at::Tensor buffer;
  /// Views of `buffer`, each in its parameter's shape, and those parameters.
  std::vector<at::Tensor> gradients;
  std::vector<at::Tensor> parameters;
};

/// Waits for what start() began, and returns the bucket's new gradients: as many elements as its buffer, on
/// the same device. Returning the buffer itself saves a copy.
using FinishBucket = std::function<at::Tensor()>;

/// How DistributedDataParallel averages gradients over the ranks. Derive from it to replace the plain
/// all-reduce. The ready-made ones are in comm_hooks.hpp, power_sgd.hpp and local_sgd.hpp.
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
/// A hook belongs to one wrapper and is never called by two threads at once. backward rethrows its
/// exceptions.
class CommHook {
 public:
  virtual ~CommHook() = default;

  /// Identifies the hook and its settings: every rank must register the same.
  virtual std::string name() const = 0;

  /// Called during backward, as soon as a bucket is complete, for the buckets in order. It should start the
  /// transfer and return; the returned function is called after backward, again in order. Both may start
  /// collectives of `group`, the wrapper's group, because all ranks call them in the same order.
  virtual FinishBucket start(const GradientBucket& bucket, const ProcessGroup& group) = 0;

  /// Bucket numbers refer to other gradients from now on: forget what is stored per bucket. Called after the
  /// first backward, in which the order of the gradients is learned.
  virtual void buckets_changed() {}
};

}  // namespace lockstep
