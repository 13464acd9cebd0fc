#include "lockstep/parallel/comm_hooks.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/topk.h>

#include <algorithm>

#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

void check_half(at::ScalarType type, const char* who) {
  if (type == at::kHalf || type == at::kBFloat16) return;
  throw UsageError(std::string(who) + ": expected Half or BFloat16 to send gradients as, but got " +
                   c10::toString(type));
}

}  // namespace

FinishBucket AllReduceHook::start(const GradientBucket& bucket, const ProcessGroup& group) {
  // Divided first, so that sums of narrow numbers do not overflow.
  bucket.buffer.div_(group.size());
  return [buffer = bucket.buffer, work = group.all_reduce_async(bucket.buffer)]() mutable {
    work.wait();
    return buffer;
  };
}

CompressHook::CompressHook(at::ScalarType type) : type_(type) { check_half(type, "CompressHook"); }

std::string CompressHook::name() const { return std::string("compress to ") + c10::toString(type_); }

FinishBucket CompressHook::start(const GradientBucket& bucket, const ProcessGroup& group) {
  const at::Tensor narrow = bucket.buffer.to(type_).div_(group.size());
  return [buffer = bucket.buffer, narrow, work = group.all_reduce_async(narrow)]() mutable {
    work.wait();
    return buffer.copy_(narrow);
  };
}

CompressWrapper::CompressWrapper(at::ScalarType type, std::shared_ptr<CommHook> inner)
    : type_(type), inner_(std::move(inner)) {
  check_half(type, "CompressWrapper");
  if (inner_ == nullptr) throw UsageError("CompressWrapper: expected a hook to wrap, but got none");
}

std::string CompressWrapper::name() const {
  return inner_->name() + ", on gradients as " + c10::toString(type_);
}

FinishBucket CompressWrapper::start(const GradientBucket& bucket, const ProcessGroup& group) {
  GradientBucket narrow = bucket;
  narrow.buffer = bucket.buffer.to(type_);
  std::int64_t offset = 0;
  for (auto& gradient : narrow.gradients) {
    const std::int64_t size = gradient.numel();
    gradient = narrow.buffer.narrow(0, offset, size).view(gradient.sizes());
    offset += size;
  }
  return [buffer = bucket.buffer, finish = inner_->start(narrow, group)] { return buffer.copy_(finish()); };
}

TopKHook::TopKHook(const TopKOptions& options) : options_(options) {
  if (!(options.fraction > 0 && options.fraction <= 1)) {
    throw UsageError("TopKHook: fraction must be more than 0 and at most 1, but is " +
                     std::to_string(options.fraction));
  }
  if (options.start_iteration < 1) {
    throw UsageError("TopKHook: start_iteration must be at least 1, since buckets change after the first");
  }
}

std::string TopKHook::name() const {
  return "top-k: fraction " + std::to_string(options_.fraction) + ", start_iteration " +
         std::to_string(options_.start_iteration);
}

FinishBucket TopKHook::start(const GradientBucket& bucket, const ProcessGroup& group) {
  const bool plain = iteration_ < options_.start_iteration;
  if (bucket.is_last) ++iteration_;
  if (plain) return AllReduceHook{}.start(bucket, group);
  at::Tensor& kept = kept_[bucket.index];
  const at::Tensor all = kept.defined() ? kept.add_(bucket.buffer) : bucket.buffer.clone();
  kept = all;
  const auto wanted = static_cast<std::int64_t>(options_.fraction * static_cast<double>(all.numel()));
  const at::Tensor places = std::get<1>(at::topk(all.abs(), std::max<std::int64_t>(wanted, 1)));
  const at::Tensor values = all.index_select(0, places);
  all.index_fill_(0, places, 0);
  const at::Tensor all_places = at::empty({group.size(), places.numel()}, places.options());
  const at::Tensor all_values = at::empty({group.size(), values.numel()}, values.options());
  Work places_sent = group.all_gather_into_tensor_async(all_places, places);
  Work values_sent = group.all_gather_into_tensor_async(all_values, values);
  return [=, buffer = bucket.buffer]() mutable {
    places_sent.wait();
    values_sent.wait();
    buffer.zero_();
    all_values.div_(all_values.size(0));
    // Rank after rank: places meet between ranks only, so every rank adds in the same order, on GPUs too.
    for (std::int64_t rank = 0; rank < all_places.size(0); ++rank)
      buffer.index_add_(0, all_places[rank], all_values[rank]);
    return buffer;
  };
}

}  // namespace lockstep
