#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "lockstep/comm/process_group.hpp"

namespace lockstep::optim {

/// Parameters of one rank's share that are stepped together, by group of the optimizer.
struct ShareBucket {
  std::vector<std::vector<at::Tensor>> by_group;

  std::vector<at::Tensor> tensors() const;
};

/// Splits one rank's share, `by_group`: each large parameter into its own bucket, small ones into buckets of
/// about `cap` bytes. All tensors of a bucket have the same device and dtype.
std::vector<ShareBucket> share_buckets(const std::vector<std::vector<at::Tensor>>& by_group,
                                       std::uint64_t cap);

/// A bucket that is being sent from its owner to the other ranks.
class SentBucket {
 public:
  /// *Collective*.
  SentBucket(const ProcessGroup& group, const ShareBucket& bucket, int owner);
  /// On return, the parameters have the owner's values. *Local*.
  void finish();

 private:
  std::vector<at::Tensor> tensors_;
  bool is_owner_;
  at::Tensor flat_;
  Work work_;
};

}  // namespace lockstep::optim
