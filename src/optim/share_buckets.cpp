#include "optim/share_buckets.hpp"

#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/flatten_dense_tensors.h>
#include <ATen/ops/unflatten_dense_tensors.h>

#include <deque>
#include <unordered_map>

namespace lockstep::optim {
namespace {

using Tensors = std::vector<at::Tensor>;

/// Parameters of this many bytes and more are sent alone and without a copy: messages of this size already
/// use the full bandwidth.
constexpr std::size_t kLarge = 1 << 20;

/// A single contiguous parameter is its own buffer; others are sent through one.
at::Tensor buffer_of(const Tensors& tensors, bool is_owner) {
  if (tensors.size() == 1 && tensors.front().is_contiguous()) return tensors.front();
  if (is_owner) return at::flatten_dense_tensors(tensors);
  std::int64_t elements = 0;
  for (const auto& tensor : tensors) elements += tensor.numel();
  return at::empty({elements}, tensors.front().options());
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
  if (flat_.is_same(tensors_.front())) {
    // Collectives do not increment versions, on which autograd and DataParallel rely.
    flat_.unsafeGetTensorImpl()->bump_version();
  } else {
    at::_foreach_copy_(tensors_, at::unflatten_dense_tensors(flat_, tensors_));
  }
}

}  // namespace lockstep::optim
