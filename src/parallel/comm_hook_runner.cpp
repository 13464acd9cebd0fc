#include "parallel/comm_hook_runner.hpp"

#include <ATen/core/grad_mode.h>
#include <fmt/core.h>
#include <torch/csrc/autograd/engine.h>
#include <algorithm>

#include "comm/diagnostics/op_meta.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::parallel {

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
  explicit ReducerHook(std::shared_ptr<CommHookRunner> runner) : runner_(std::move(runner)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    const std::size_t index = runner_->start(bucket_of(bucket));
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
    future->markCompleted(static_cast<std::int64_t>(index));
    return future;
  }

  at::Tensor parseHookResult(const c10::IValue& result) override {
    at::Tensor gradients = runner_->finish(static_cast<std::size_t>(result.toInt()));
    if (runner_->is_complete()) {
      torch::autograd::Engine::get_default_engine().queue_callback(
          [runner = runner_] { runner->after_backward(); });
    }
    return gradients;
  }

 private:
  std::shared_ptr<CommHookRunner> runner_;
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

std::unique_ptr<c10d::CommHookInterface> as_reducer_hook(std::shared_ptr<CommHookRunner> runner) {
  return std::make_unique<ReducerHook>(std::move(runner));
}

}  // namespace lockstep::parallel
