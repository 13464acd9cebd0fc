#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <unordered_map>
#include <vector>

#include "lockstep/parallel/comm_hook.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"

namespace lockstep::parallel {

/// What the reducer does without a hook, as a hook, with the same bits.
class PlainMean : public CommHook {
 public:
  explicit PlainMean(int divisor) : divisor_(divisor) {}

  std::string name() const override { return "none"; }
  FinishBucket start(const GradientBucket& bucket, const ProcessGroup& group) override;

  void set_divisor(int divisor) { divisor_ = divisor; }
  /// Whether the gradients lie in the bucket already: the reducer divides those in place, and multiplies
  /// others by the reciprocal as it copies them.
  void set_in_place(bool in_place) { in_place_ = in_place; }

 private:
  int divisor_;
  bool in_place_ = false;
};

/// Looks for NaN and infinity in the gradients that this rank is about to send, and tells all ranks. One sum
/// for each bucket; a number for each rank travels while the last buckets do.
class GradientCheck {
 public:
  GradientCheck(const ProcessGroup& group, const std::vector<NamedTensor>& parameters,
                NonFiniteGradients policy);

  /// Before a bucket is changed or sent; after the last one, this rank's finding goes on its way.
  void look(const GradientBucket& bucket);

  /// When backward has ended: waits for the ranks' findings and does what the policy says. Throws Error on
  /// every rank where that is `error`; true where the gradients must be dropped.
  bool conclude();

 private:
  std::string describe(std::int64_t finding) const;

  ProcessGroup group_;
  NonFiniteGradients policy_;
  std::vector<std::string> names_;
  std::unordered_map<const void*, std::int64_t> numbers_;
  std::int64_t backwards_ = 0;
  std::int64_t finding_ = 0;
  at::Tensor findings_;
  std::optional<Work> sent_;
};

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
