#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "lockstep/parallel/comm_hook.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"

namespace lockstep::parallel {

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

}  // namespace lockstep::parallel
