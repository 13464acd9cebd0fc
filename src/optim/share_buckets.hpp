#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "lockstep/comm/process_group.hpp"

namespace lockstep::optim {

/// Some parameters of one rank's share: of each group of the optimizer those that are stepped together.
struct ShareBucket {
  std::vector<std::vector<at::Tensor>> by_group;

  std::vector<at::Tensor> tensors() const;
};

/// One rank's share, `by_group`: large parameters each in a bucket of its own, small ones together in buckets
/// of about `cap` bytes. All tensors of a bucket are of one device and dtype.
std::vector<ShareBucket> share_buckets(const std::vector<std::vector<at::Tensor>>& by_group,
                                       std::uint64_t cap);

/// A bucket on its way from its owner to the others.
class SentBucket {
 public:
  /// *Collective*.
  SentBucket(const ProcessGroup& group, const ShareBucket& bucket, int owner);
  /// The parameters have the owner's values when it returns. *Local*.
  void finish();

 private:
  std::vector<at::Tensor> tensors_;
  bool is_owner_;
  at::Tensor flat_;
  Work work_;
};

}  // namespace lockstep::optim
