#include <ATen/ScalarOps.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <fmt/core.h>
#include <torch/csrc/autograd/engine.h>
#include <algorithm>
#include <cmath>
#include <iostream>

#include "comm/diagnostics/op_meta.hpp"
#include "comm_hook_runner.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::parallel {

FinishBucket PlainMean::start(const GradientBucket& bucket, const ProcessGroup& group) {
  if (in_place_) {
    bucket.buffer.div_(divisor_);
  } else {
    // A tensor, as in the reducer: a number would first be rounded to the gradients' precision.
    bucket.buffer.mul_(at::native::wrapped_scalar_tensor(1.0 / divisor_));
  }
  return [buffer = bucket.buffer, work = group.all_reduce_async(bucket.buffer)]() mutable {
    work.wait();
    return buffer;
  };
}

namespace {

constexpr std::int64_t kRankUnit = std::int64_t{1} << 32;

/// A finite sum proves that all are finite; otherwise the sum may have overflowed, so each is checked.
bool all_finite(const at::Tensor& gradients) {
  return std::isfinite(gradients.sum().item<double>()) || at::isfinite(gradients).all().item<bool>();
}

}  // namespace

GradientCheck::GradientCheck(const ProcessGroup& group, const std::vector<NamedTensor>& parameters,
                             NonFiniteGradients policy)
    : group_(group), policy_(policy) {
  for (const auto& entry : parameters) {
    numbers_.emplace(entry.tensor.unsafeGetTensorImpl(), static_cast<std::int64_t>(names_.size()));
    names_.push_back(entry.name);
  }
}

/// All ranks must report the same finding, though each may have several or none, and it must cost one number.
/// So a finding is packed into one word, whose maximum over all ranks is the one to report:
///
///     63              32 31               0
///     [ ranks - rank    | names - number  ]      0: no finding
///
/// Both halves are 1 or more, and larger for lower ranks and for parameters that were registered earlier: the
/// maximum is the first bad parameter of the first rank that has one, whatever the order in which buckets
/// become ready. describe() unpacks it. The all-reduce starts with the last bucket and ends beside it.
void GradientCheck::look(const GradientBucket& bucket) {
  if (bucket.index == 0) finding_ = 0;
  if (!all_finite(bucket.buffer)) {
    for (std::size_t i = 0; i < bucket.gradients.size(); ++i) {
      if (all_finite(bucket.gradients[i])) continue;
      const auto number = numbers_.at(bucket.parameters[i].unsafeGetTensorImpl());
      finding_ = std::max(finding_, (group_.size() - group_.rank()) * kRankUnit +
                                        static_cast<std::int64_t>(names_.size()) - number);
    }
  }
  if (!bucket.is_last) return;
  ++backwards_;
  findings_ = at::full({1}, finding_, at::TensorOptions(group_.object_device()).dtype(at::kLong));
  sent_ = group_.all_reduce_async(findings_, ReduceOp::max);
}

std::string GradientCheck::describe(std::int64_t finding) const {
  const std::int64_t rank = group_.size() - finding / kRankUnit;
  const auto number =
      static_cast<std::size_t>(static_cast<std::int64_t>(names_.size()) - finding % kRankUnit);
  return fmt::format("the gradient of '{}' on rank {} is not finite (NaN or infinity) in backward {}",
                     names_.at(number), rank, backwards_);
}

bool GradientCheck::conclude() {
  if (!sent_) return false;
  sent_->wait();
  sent_.reset();
  const std::int64_t finding = findings_.item<std::int64_t>();
  if (finding == 0) return false;
  const std::string text = describe(finding);
  if (policy_ == NonFiniteGradients::error) {
    throw Error(fmt::format(
        "rank {} of {}: {}. Lower the learning rate, look at that rank's batch, or let such steps be skipped",
        group_.rank(), group_.size(), text));
  }
  const bool skips = policy_ == NonFiniteGradients::skip;
  if (group_.rank() == 0) {
    std::cerr << "lockstep: warning: " + text + (skips ? ": this step is skipped on all ranks\n" : "\n")
              << std::flush;
  }
  return skips;
}

namespace {

GradientBucket bucket_of(c10d::GradBucket& bucket) {
  return {
      .buffer = bucket.getBuffer(), .gradients = bucket.getGradients(), .parameters = bucket.getParameters()};
}

void check_result(const at::Tensor& result, const GradientBucket& bucket, const CommHook& hook) {
  if (result.defined() && result.numel() == bucket.buffer.numel() &&
      result.device() == bucket.buffer.device()) {
    return;
  }
  throw UsageError(
      fmt::format("communication hook '{}': expected {} gradients back for bucket {}, but got {}",
                  hook.name(), bucket.buffer.numel(), bucket.index,
                  result.defined() ? fmt::format("{} on {}", result.numel(), result.device().str())
                                   : "an undefined tensor"));
}

/// The reducer gets a future that is already complete, and asks for the gradients after backward. So both
/// parts of a hook run in the thread of backward, in the same order on every rank.
class ReducerHook : public c10d::CommHookInterface {
 public:
  explicit ReducerHook(std::shared_ptr<CommHookRunner> pipeline) : pipeline_(std::move(pipeline)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    const std::size_t index = pipeline_->start(bucket_of(bucket));
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
    future->markCompleted(static_cast<std::int64_t>(index));
    return future;
  }

  at::Tensor parseHookResult(const c10::IValue& result) override {
    at::Tensor gradients = pipeline_->finish(static_cast<std::size_t>(result.toInt()));
    if (pipeline_->is_complete()) {
      torch::autograd::Engine::get_default_engine().queue_callback(
          [pipeline = pipeline_] { pipeline->after_backward(); });
    }
    return gradients;
  }

 private:
  std::shared_ptr<CommHookRunner> pipeline_;
};

/// The gradients in `averaged`, with their parameters' strides, as in the reducer.
std::vector<at::Tensor> split(const at::Tensor& averaged, const GradientBucket& bucket) {
  std::vector<at::Tensor> parts;
  std::int64_t offset = averaged.storage_offset();
  for (const auto& parameter : bucket.parameters) {
    const bool dense = parameter.is_non_overlapping_and_dense();
    parts.push_back(averaged.as_strided(
        parameter.sizes(), dense ? parameter.strides() : parameter.contiguous().strides(), offset));
    offset += parameter.numel();
  }
  return parts;
}

}  // namespace

CommHookRunner::CommHookRunner(const ProcessGroup& group, std::shared_ptr<CommHook> hook,
                               const std::vector<NamedTensor>& parameters)
    : group_(group), hook_(std::move(hook)), parameters_(parameters) {}

void CommHookRunner::backward_begins() {
  pending_.clear();
  parameters_started_ = 0;
}

std::size_t CommHookRunner::start(GradientBucket bucket) {
  const at::NoGradGuard no_grad;
  bucket.index = pending_.size();
  parameters_started_ += bucket.parameters.size();
  bucket.is_last = parameters_started_ == parameters_.size();
  if (bucket.is_last) parameters_started_ = 0;
  const comm::OperationLabel label(fmt::format("bucket {}", bucket.index));
  if (check_ != nullptr) check_->look(bucket);
  pending_.emplace(bucket.index, Pending{bucket, hook_->start(bucket, group_)});
  return bucket.index;
}

at::Tensor CommHookRunner::finish(std::size_t index) {
  const at::NoGradGuard no_grad;
  const auto pending = std::move(pending_.extract(index).mapped());
  at::Tensor result = pending.finish();
  check_result(result, pending.bucket, *hook_);
  if (apply_) apply_(pending.bucket.parameters, split(result.view(-1), pending.bucket));
  return result;
}

void CommHookRunner::after_backward() {
  const bool dropped = check_ != nullptr && check_->conclude();
  if (!dropped && !apply_) return;
  for (const auto& entry : parameters_) clear_gradient(entry.tensor);
}

std::unique_ptr<c10d::CommHookInterface> as_reducer_hook(std::shared_ptr<CommHookRunner> pipeline) {
  return std::make_unique<ReducerHook>(std::move(pipeline));
}

}  // namespace lockstep::parallel
