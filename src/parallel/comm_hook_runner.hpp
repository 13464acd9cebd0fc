#pragma once

#include <map>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <vector>

#include "lockstep/parallel/comm_hook.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "parallel/gradient_check.hpp"

namespace lockstep::parallel {

/// Runs the communication hook, the check and `apply` for the reducer's buckets.
class CommHookRunner {
 public:
  CommHookRunner(const ProcessGroup& group, std::shared_ptr<CommHook> hook,
                 const std::vector<NamedTensor>& parameters);

  /// Between a backward and the next forward.
  void set_hook(std::shared_ptr<CommHook> hook) { hook_ = std::move(hook); }
  CommHook& hook() { return *hook_; }

  /// Called before a backward, to forget one that threw.
  void backward_begins();
  /// Both run in the thread of backward, for the buckets in order. start() numbers the bucket, and returns
  /// its number: the reducer gives all buckets the same one in the first backward of a static graph.
  std::size_t start(GradientBucket bucket);
  at::Tensor finish(std::size_t index);
  /// Whether all buckets of a backward have been finished.
  bool is_complete() const { return pending_.empty(); }
  /// Called after the reducer has stored the gradients.
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
  std::size_t parameters_started_ = 0;
};

/// The runner as the hook of the reducer.
std::unique_ptr<c10d::CommHookInterface> as_reducer_hook(std::shared_ptr<CommHookRunner> runner);

}  // namespace lockstep::parallel
