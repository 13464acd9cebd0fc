#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/flatten_dense_tensors.h>
#include <ATen/ops/unflatten_dense_tensors.h>
#include <fmt/core.h>

#include "lockstep/core/error.hpp"
#include "lockstep/parallel/comm_hooks.hpp"
#include "lockstep/parallel/local_sgd.hpp"

namespace lockstep {
namespace {

void average(const ProcessGroup& group, const std::vector<at::Tensor>& parameters) {
  if (parameters.empty()) return;
  std::vector<at::Tensor> values;
  for (const auto& parameter : parameters) values.push_back(parameter.detach());
  const at::Tensor flat = at::flatten_dense_tensors(values).div_(group.size());
  group.all_reduce(flat);
  at::_foreach_copy_(values, at::unflatten_dense_tensors(flat, values));
}

}  // namespace

PostLocalSgdHook::PostLocalSgdHook(const PostLocalSgdOptions& options) : options_(options) {
  if (options.start_iteration < 0) throw UsageError("PostLocalSgdHook: start_iteration must not be negative");
}

std::string PostLocalSgdHook::name() const {
  return fmt::format("post-local SGD: start_iteration {}, subgroup of {}", options_.start_iteration,
                     options_.subgroup ? options_.subgroup->size() : 1);
}

FinishBucket PostLocalSgdHook::start(const GradientBucket& bucket, const ProcessGroup& group) {
  const bool over_all = iteration_ < options_.start_iteration;
  if (bucket.is_last) ++iteration_;
  if (over_all) return AllReduceHook{}.start(bucket, group);
  if (options_.subgroup) return AllReduceHook{}.start(bucket, *options_.subgroup);
  return [buffer = bucket.buffer] { return buffer; };
}

PeriodicModelAverager::PeriodicModelAverager(const ProcessGroup& group,
                                             const PeriodicModelAveragerOptions& options)
    : group_(group), options_(options) {
  if (options.period < 1) throw UsageError("PeriodicModelAverager: period must be at least 1");
  if (options.warmup_steps < 0) throw UsageError("PeriodicModelAverager: warmup_steps must not be negative");
}

void PeriodicModelAverager::average_parameters(const std::vector<at::Tensor>& parameters) {
  const std::int64_t step = step_++;
  if (step < options_.warmup_steps || (step - options_.warmup_steps) % options_.period != 0) return;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> trained;
  for (const auto& parameter : parameters) {
    if (parameter.grad().defined()) trained.push_back(parameter);
  }
  average(group_, trained);
}

LocalSgd::LocalSgd(DistributedDataParallelBase& model, std::int64_t steps)
    : model_(model), period_(steps), silence_(model) {
  if (steps < 1) throw UsageError("LocalSgd: the steps between two averages must be at least 1.");
}

void LocalSgd::step() {
  if (++step_ % period_ == 0) average();
}

void LocalSgd::finish() {
  if (step_ % period_ != 0) average();
  step_ = 0;
}

void LocalSgd::average() {
  const ProcessGroup& group = model_.process_group();
  if (group.size() == 1) return;
  const at::NoGradGuard no_grad;
  std::vector<Work> exchanges;
  for (const auto& entry : model_.parameters())
    exchanges.push_back(group.all_reduce_async(entry.tensor.detach(), ReduceOp::avg));
  for (auto& exchange : exchanges) exchange.wait();
}

}  // namespace lockstep
