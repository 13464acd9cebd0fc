#pragma once

#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <vector>

#include "lockstep/comm/process_group.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "straggler_detector.hpp"

namespace lockstep::parallel {

/// What the reducer takes for its process group: the group's own backends, with each all_reduce of a bucket
/// named, so that messages and traces say which bucket it was. The reducer starts them in the thread of
/// backward, bucket after bucket.
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

/// A reducer that tells what it has measured. Its process group is a LabeledProcessGroup.
class TimedReducer : public c10d::Reducer {
 public:
  using Reducer::Reducer;

  /// Of the last synchronised step; nothing when it was not completed, and on GPUs, where asking would wait.
  std::optional<StepTimes> times() const;
  /// To be called before the buckets of a step are sent: the first of them is named as the first.
  void buckets_begin() { static_cast<LabeledProcessGroup&>(*process_group_).backward_begins(); }
  bool has_rebuilt_buckets() const { return has_rebuilt_bucket_; }
};

/// What keeps these parameters from being trained, or "".
std::string complaint_about(const std::vector<NamedTensor>& parameters, const ProcessGroup& group,
                            const DistributedDataParallelOptions& options);

/// Why gradients cannot be applied in backward with these options, or "".
std::string complaint_about_applying(const DistributedDataParallelOptions& options);

/// The options on which all ranks must agree, in words.
std::string summary_of(const DistributedDataParallelOptions& options);

/// The same buckets as PyTorch's DDP makes: where the order of gradients is not yet known and they will be
/// rebuilt after the first iteration, one bucket for all; else buckets in reverse order of registration.
BucketLayout first_buckets(const std::vector<NamedTensor>& parameters,
                           const DistributedDataParallelOptions& options);

/// Throws UsageError unless each of so many parameters is in the layout once.
void check_layout(const BucketLayout& layout, std::size_t parameters);

std::shared_ptr<TimedReducer> make_reducer(const std::vector<NamedTensor>& parameters, BucketLayout buckets,
                                           const ProcessGroup& group,
                                           const DistributedDataParallelOptions& options);

}  // namespace lockstep::parallel
