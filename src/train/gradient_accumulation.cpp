#include "lockstep/train/gradient_accumulation.hpp"

#include <ATen/ops/scalar_tensor.h>
#include <fmt/core.h>

#include <list>
#include <utility>

#include "comm/errors.hpp"
#include "lockstep/comm/trace.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"
#include "train/accumulation_window.hpp"
#include "train/comm_hook_by_name.hpp"

namespace lockstep {
namespace {

template <class Backward>
void run_backward(const ProcessGroup& group, const Backward& run) {
  process_heartbeat().perhaps_waiting("backward");
  const trace::Range range("backward");
  try {
    run();
  } catch (...) {
    comm::rethrow_lost_peer(
        fmt::format("rank {} of {}: averaging the gradients in backward failed", group.rank(), group.size()));
  }
}

}  // namespace

LossWeight::LossWeight(double weight) : tensor_(at::scalar_tensor(weight, at::kDouble)) {
  if (!(weight >= 0)) throw UsageError(fmt::format("the weight of a loss must be 0 or more, not {}", weight));
}

double LossWeight::item() const { return tensor_.item<double>(); }

GradientAccumulation::GradientAccumulation(const ProcessGroup& group, const AcceleratorOptions& options)
    : group_(group),
      options_(options),
      gradients_(std::make_shared<train::AccumulationWindow>(group, options)) {
  const auto hook = train::comm_hook_by_name(options.comm_hook, options.comm_wrapper);
  if (options.fsdp_plugin && hook)
    throw UsageError("comm_hook '" + options.comm_hook + "': fsdp_plugin has no gradients for a hook");
  if (options.fsdp_plugin && options.fsdp_plugin->mixed_precision_policy &&
      options.mixed_precision != MixedPrecision::no) {
    throw UsageError(
        "fsdp_plugin has a mixed_precision_policy beside mixed_precision: one computes in its dtype, the "
        "other by autocast; leave one of them out");
  }
  comm::observe(group, gradients_);
}

AccumulationStep GradientAccumulation::accumulate_for(const std::vector<WrappedModel>& models) {
  gradients_->begin_step();
  return AccumulationStep(gradients_, models.empty() ? gradients_->models() : models);
}

bool GradientAccumulation::sync_gradients() const noexcept { return gradients_->syncs(); }

std::int64_t GradientAccumulation::gradient_accumulation_steps() const noexcept {
  return gradients_->steps();
}

void GradientAccumulation::set_gradient_accumulation_steps(std::int64_t steps) {
  gradients_->set_steps(steps);
}

void GradientAccumulation::backward(const at::Tensor& loss) {
  run_backward(group_, [&] { gradients_->backward(loss); });
}

void GradientAccumulation::backward(const at::Tensor& sum, const LossWeight& weight) {
  run_backward(group_, [&] { gradients_->backward(sum, weight.tensor()); });
}

MixedPrecision GradientAccumulation::mixed_precision() const noexcept { return options_.mixed_precision; }

Autocast GradientAccumulation::autocast() const {
  return Autocast(group_.device(), options_.mixed_precision);
}

bool GradientAccumulation::optimizer_step_was_skipped() const { return gradients_->skipped(); }

void GradientAccumulation::unscale_gradients() { gradients_->unscale_all(); }

void GradientAccumulation::add_hook(DistributedDataParallelBase& model) {
  auto hook = train::comm_hook_by_name(options_.comm_hook, options_.comm_wrapper);
  if (hook) model.register_comm_hook(std::move(hook));
}

struct AccumulationStep::Silence {
  std::list<WrappedModel::NoSync> guards;
};

AccumulationStep::AccumulationStep(std::shared_ptr<train::AccumulationWindow> gradients,
                                   const std::vector<WrappedModel>& models)
    : gradients_(std::move(gradients)) {
  if (gradients_->syncs() || gradients_->sends_each_batch()) return;
  silence_ = std::make_unique<Silence>();
  for (const auto& model : models) silence_->guards.emplace_back(model);
}

AccumulationStep::~AccumulationStep() { gradients_->end(); }

}  // namespace lockstep
