#include "share_buckets.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

namespace lockstep::optim {
namespace {

using Tensors = std::vector<at::Tensor>;

/// From so many bytes on a parameter travels alone and without a copy: messages of this size use the whole
/// bandwidth already.
constexpr std::size_t kLarge = 1 << 20;

/// One dense parameter is its own buffer; others travel through one.
at::Tensor buffer_of(const Tensors& tensors, bool is_owner) {
  if (tensors.size() == 1 && tensors.front().is_contiguous()) return tensors.front();
  Tensors flat;
  std::int64_t elements = 0;
  for (const auto& tensor : tensors) {
    if (is_owner) flat.push_back(tensor.reshape(-1));
    elements += tensor.numel();
  }
  return is_owner ? at::cat(flat) : at::empty({elements}, tensors.front().options());
}

bool fits(const at::Tensor& one, const at::Tensor& other) {
  const bool small = one.nbytes() < kLarge && other.nbytes() < kLarge;
  return small && one.device() == other.device() && one.scalar_type() == other.scalar_type();
}

}  // namespace

Tensors ShareBucket::tensors() const {
  Tensors all;
  for (const auto& group : by_group) {
    for (const auto& tensor : group) all.push_back(tensor.detach());
  }
  return all;
}

std::vector<ShareBucket> share_buckets(const std::vector<Tensors>& by_group, std::uint64_t cap) {
  std::vector<ShareBucket> buckets;
  std::uint64_t bytes = 0;
  at::Tensor last;
  for (std::size_t group = 0; group < by_group.size(); ++group) {
    for (const auto& tensor : by_group[group]) {
      if (!last.defined() || bytes >= cap || !fits(last, tensor)) {
        buckets.push_back({std::vector<Tensors>(by_group.size())});
        bytes = 0;
      }
      buckets.back().by_group[group].push_back(tensor);
      bytes += tensor.nbytes();
      last = tensor;
    }
  }
  return buckets;
}

SentBucket::SentBucket(const ProcessGroup& group, const ShareBucket& bucket, int owner)
    : tensors_(bucket.tensors()),
      is_owner_(group.rank() == owner),
      flat_(buffer_of(tensors_, is_owner_)),
      work_(group.broadcast_async(flat_, owner)) {}

void SentBucket::finish() {
  work_.wait();
  if (is_owner_) return;
  std::int64_t begin = 0;
  for (const auto& tensor : tensors_) {
    if (flat_.is_same(tensor)) {
      // Collectives count no versions, which autograd and DataParallel go by.
      tensor.unsafeGetTensorImpl()->bump_version();
    } else {
      tensor.copy_(flat_.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    }
    begin += tensor.numel();
  }
}

}  // namespace lockstep::optim
