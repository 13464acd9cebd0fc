#include "lockstep/train/gradient_control.hpp"

#include <ATen/autocast_mode.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <fmt/core.h>
#include <torch/nn/utils/clip_grad.h>

#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "../comm/errors.hpp"
#include "comm_hook_by_name.hpp"
#include "gradients.hpp"
#include "lockstep/comm/trace.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"

namespace lockstep {
namespace {

at::ScalarType dtype_of(MixedPrecision precision) {
  return precision == MixedPrecision::fp16 ? at::kHalf : at::kBFloat16;
}

std::vector<at::Tensor> parameters_of(const DistributedDataParallelBase& model) {
  std::vector<at::Tensor> parameters;
  for (const auto& entry : model.parameters()) parameters.push_back(entry.tensor);
  return parameters;
}

/// Each once: a matrix that several layers share has several names, but one gradient.
std::vector<at::Tensor> distinct(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> result;
  std::set<const void*> seen;
  for (const auto& parameter : parameters) {
    if (seen.insert(parameter.unsafeGetTensorImpl()).second) result.push_back(parameter);
  }
  return result;
}

struct DeviceOrder {
  bool operator()(const at::Device& one, const at::Device& other) const {
    return std::pair(one.type(), one.index()) < std::pair(other.type(), other.index());
  }
};

std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : parameters) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  return gradients;
}

/// torch.nn.utils.clip_grad_norm_ with foreach=True: one kernel for all norms, one for all products, and no
/// answer from the device in between.
at::Tensor clip(const std::vector<at::Tensor>& gradients, double max_norm, double norm_type) {
  const at::NoGradGuard no_grad;
  if (gradients.empty()) return at::zeros({}, at::kFloat);
  auto norms = at::_foreach_norm(gradients, norm_type);
  for (auto& norm : norms) norm = norm.to(norms.front().device());
  const at::Tensor total = at::linalg_vector_norm(at::stack(norms), norm_type);
  if (std::isinf(max_norm)) return total;
  const at::Tensor factor = (max_norm / (total + 1e-6)).clamp_max(1.0);
  std::map<at::Device, std::vector<at::Tensor>, DeviceOrder> by_device;
  for (const auto& gradient : gradients) by_device[gradient.device()].push_back(gradient);
  for (const auto& [device, list] : by_device) at::_foreach_mul_(list, factor.to(device));
  return total;
}

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

Autocast::Autocast(const at::Device& device, MixedPrecision precision)
    : device_(device.type()),
      was_on_(at::autocast::is_autocast_enabled(device_)),
      dtype_before_(at::autocast::get_autocast_dtype(device_)) {
  at::autocast::set_autocast_enabled(device_, precision != MixedPrecision::no);
  if (precision != MixedPrecision::no) at::autocast::set_autocast_dtype(device_, dtype_of(precision));
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  // The outermost one drops the copies of parameters: the next step changes these.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_on_);
  at::autocast::set_autocast_dtype(device_, dtype_before_);
}

GradientControl::GradientControl(const ProcessGroup& group, const GradientOptions& options)
    : group_(group),
      options_(options),
      gradients_(std::make_shared<train::Gradients>(group, options.accumulation, options.mixed_precision,
                                                    options.grad_scaler)) {
  train::comm_hook_by_name(options.comm_hook, options.comm_wrapper);  // Refuses names that are none.
}

AccumulationStep GradientControl::accumulate_for(std::vector<DistributedDataParallelBase*> models) const {
  gradients_->begin_step();
  return AccumulationStep(gradients_, models.empty() ? gradients_->models() : models);
}

bool GradientControl::sync_gradients() const noexcept { return gradients_->syncs(); }

std::int64_t GradientControl::gradient_accumulation_steps() const noexcept { return gradients_->steps(); }

void GradientControl::set_gradient_accumulation_steps(std::int64_t steps) const {
  gradients_->set_steps(steps);
}

void GradientControl::backward(const at::Tensor& loss) const {
  run_backward(group_, [&] { gradients_->backward(loss); });
}

void GradientControl::backward(const at::Tensor& sum, double weight) const {
  run_backward(group_, [&] { gradients_->backward(sum, weight); });
}

MixedPrecision GradientControl::mixed_precision() const noexcept { return options_.mixed_precision; }

Autocast GradientControl::autocast() const { return Autocast(group_.device(), options_.mixed_precision); }

bool GradientControl::optimizer_step_was_skipped() const noexcept { return gradients_->skipped(); }

void GradientControl::unscale_gradients() const { gradients_->unscale_all(); }

at::Tensor GradientControl::clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm,
                                            double norm_type) const {
  if (!(max_norm > 0)) {
    throw UsageError(
        fmt::format("clip_grad_norm_: max_norm is {}, expected a number above 0 (infinity only "
                    "measures the norm)",
                    max_norm));
  }
  if (!sync_gradients()) return {};
  gradients_->unscale(parameters);
  return clip(gradients_of(distinct(parameters)), max_norm, norm_type);
}

at::Tensor GradientControl::clip_grad_norm_(const DistributedDataParallelBase& model, double max_norm,
                                            double norm_type) const {
  return clip_grad_norm_(parameters_of(model), max_norm, norm_type);
}

void GradientControl::clip_grad_value_(const std::vector<at::Tensor>& parameters, double clip_value) const {
  if (!sync_gradients()) return;
  gradients_->unscale(parameters);
  torch::nn::utils::clip_grad_value_(distinct(parameters), clip_value);
}

void GradientControl::clip_grad_value_(const DistributedDataParallelBase& model, double clip_value) const {
  clip_grad_value_(parameters_of(model), clip_value);
}

void GradientControl::add_hook(DistributedDataParallelBase& model) const {
  auto hook = train::comm_hook_by_name(options_.comm_hook, options_.comm_wrapper);
  if (hook) model.register_comm_hook(std::move(hook));
}

}  // namespace lockstep
