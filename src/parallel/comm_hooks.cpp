#include "lockstep/parallel/comm_hooks.hpp"

#include <ATen/ops/unflatten_dense_tensors.h>
#include <fmt/core.h>

#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

void check_half(at::ScalarType type, const char* who) {
  if (type == at::kHalf || type == at::kBFloat16) return;
  throw UsageError(fmt::format("{}: expected Half or BFloat16 to send gradients as, but got {}", who,
                               c10::toString(type)));
}

}  // namespace

FinishBucket AllReduceHook::start(const GradientBucket& bucket, const ProcessGroup& group) {
  // Divided first, so that sums in 16-bit dtypes do not overflow.
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
  return fmt::format("{}, on gradients as {}", inner_->name(), c10::toString(type_));
}

FinishBucket CompressWrapper::start(const GradientBucket& bucket, const ProcessGroup& group) {
  GradientBucket narrow = bucket;
  narrow.buffer = bucket.buffer.to(type_);
  narrow.gradients = at::unflatten_dense_tensors(narrow.buffer, bucket.gradients);
  return [buffer = bucket.buffer, finish = inner_->start(narrow, group)] { return buffer.copy_(finish()); };
}

}  // namespace lockstep
