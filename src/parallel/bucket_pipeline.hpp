#pragma once

#include <map>
#include <memory>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include "gradient_check.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"

namespace lockstep::parallel {

/// What happens to the buckets of a backward between the reducer and the other ranks.
class CommHookRunner {
 public:
  CommHookRunner(const ProcessGroup& group, std::shared_ptr<CommHook> hook,
                 const std::vector<NamedTensor>& parameters);

  /// Between a backward and the next forward.
  void set_hook(std::shared_ptr<CommHook> hook) { hook_ = std::move(hook); }
  CommHook& hook() { return *hook_; }

  /// Both in the thread of backward, for the buckets in order.
  void start(const GradientBucket& bucket);
  at::Tensor finish(std::size_t index);
  /// When the reducer has put the gradients in their places.
  void after_backward();

  void set_check(std::unique_ptr<GradientCheck> check) { check_ = std::move(check); }
  void set_apply(ApplyGradients apply) { apply_ = std::move(apply); }

 private:
  struct Pending {
    GradientBucket bucket;
    FinishBucket finish;
  };

  ProcessGroup group_;
  std::shared_ptr<CommHook> hook_;
  std::vector<NamedTensor> parameters_;
  std::unique_ptr<GradientCheck> check_;
  ApplyGradients apply_;
  std::map<std::size_t, Pending> pending_;
};

/// The pipeline as the reducer calls it.
std::unique_ptr<c10d::CommHookInterface> as_reducer_hook(std::shared_ptr<CommHookRunner> pipeline);

}  // namespace lockstep::parallel
