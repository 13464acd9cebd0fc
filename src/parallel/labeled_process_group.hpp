#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "lockstep/comm/process_group.hpp"

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

}  // namespace lockstep::parallel
