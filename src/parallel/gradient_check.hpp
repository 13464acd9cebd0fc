#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "lockstep/parallel/comm_hook.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"

namespace lockstep::parallel {

/// Checks the gradients that this rank is about to send for NaN and infinity, and reports the result to all
/// ranks. Costs one sum per bucket; one number per rank is sent during the last buckets.
class GradientCheck {
 public:
  GradientCheck(const ProcessGroup& group, const std::vector<NamedTensor>& parameters,
                NonFiniteGradients policy);

  /// Called before a bucket is changed or sent. After the last one, the exchange of findings starts.
  void look(const GradientBucket& bucket);

  /// Called after backward: waits for the ranks' findings and applies the policy. Throws Error on every rank
  /// if that is `error`; returns true if the gradients must be dropped.
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

}  // namespace lockstep::parallel
