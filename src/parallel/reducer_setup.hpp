#pragma once

#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <vector>

#include "lockstep/comm/process_group.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "parallel/straggler_detector.hpp"

namespace lockstep::parallel {

/// The reducer's process group: the group's own backends, with a label for each all_reduce of a bucket, so
/// that errors and traces name the bucket. The reducer starts these in the thread of backward, bucket by
/// bucket.
class LabeledProcessGroup final : public c10d::ProcessGroup {
 public:
  explicit LabeledProcessGroup(const lockstep::ProcessGroup& group);

  /// The next all_reduce is that of the first bucket.
  void backward_begins() { next_ = 0; }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override;
  const std::string getBackendName() const override { return inner_->getBackendName(); }

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> inner_;
  int next_ = 0;
};

/// A reducer that exposes its measurements and owns its hooks. Its process group is a LabeledProcessGroup.
class TimedReducer : public c10d::Reducer {
 public:
  /// The parameters' names, for errors, and the arguments of c10d::Reducer.
  template <class... Arguments>
  explicit TimedReducer(const std::vector<NamedTensor>& parameters, Arguments&&... arguments)
      : Reducer(std::forward<Arguments>(arguments)...) {
    for (const auto& entry : parameters) names_.push_back(entry.name);
    attach_own_hooks();
  }

  /// If the gradient accumulator of parameter `number` was replaced, as torch::load() does: attaches the hook
  /// to the new one. Call it before a forward.
  void follow(std::size_t number);
  /// Whether gradients that arrive now are averaged.
  bool expects_gradients() const { return expect_autograd_hooks_; }

  /// Of the last synchronized step. Empty if that was not completed, and on GPUs, where reading them would
  /// synchronize.
  std::optional<StepTimes> times() const;
  /// Call it before the buckets of a step are sent: labels restart at the first bucket.
  void buckets_begin() { static_cast<LabeledProcessGroup&>(*process_group_).backward_begins(); }
  /// Call it before a further backward between two forwards: the order of its gradients counts.
  void forget_order() {
    rebuilt_params_.clear();
    rebuilt_param_indices_.clear();
  }
  bool has_rebuilt_buckets() const { return has_rebuilt_bucket_; }
  /// How the next forward groups the gradients, without telling the other ranks: in the order of the first
  /// backward, if that was the last one and has succeeded; otherwise as they are grouped now. *Local*.
  BucketLayout layout_of_next_forward(const DistributedDataParallelOptions& options, bool has_failed) const;
  /// The last backward ended with an exception and has sent nothing: it was recorded as a CUDA graph, not
  /// run.
  void forget_backward() {
    forget_order();
    require_finalize_ = false;
    expect_autograd_hooks_ = false;
  }

 private:
  void attach_own_hooks();
  void attach(std::size_t number);
  void gradient_arrived(std::size_t number);
  /// Throws Error, for an exception of the reducer in backward.
  [[noreturn]] void explain_in_backward(const std::string& complaint, const std::string& name) const;

  std::vector<std::string> names_;
};

/// Why these parameters cannot be trained, or "".
std::string complaint_about(const std::vector<NamedTensor>& parameters, const ProcessGroup& group,
                            const DistributedDataParallelOptions& options);

/// Why gradients cannot be applied in backward with these options, or "".
std::string complaint_about_applying(const DistributedDataParallelOptions& options);

/// Text of the options on which all ranks must agree.
std::string summary_of(const DistributedDataParallelOptions& options);

/// The same buckets as in PyTorch's DDP: one bucket for all gradients if they will be rebuilt after the first
/// iteration, when the order of gradients is known; otherwise buckets in reverse order of registration.
BucketLayout first_buckets(const std::vector<NamedTensor>& parameters,
                           const DistributedDataParallelOptions& options);

/// Throws UsageError unless each of the `parameters` numbers occurs in the layout once.
void check_layout(const BucketLayout& layout, std::size_t parameters);

std::shared_ptr<TimedReducer> make_reducer(const std::vector<NamedTensor>& parameters, BucketLayout buckets,
                                           const ProcessGroup& group,
                                           const DistributedDataParallelOptions& options);

}  // namespace lockstep::parallel
