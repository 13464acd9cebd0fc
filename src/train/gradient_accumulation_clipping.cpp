// Clipping of gradients, as torch.nn.utils does it.

#include <ATen/ATen.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <fmt/core.h>
#include <torch/nn/utils/clip_grad.h>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/train/gradient_accumulation.hpp"
#include "train/accumulation_window.hpp"

namespace lockstep {
namespace {

std::vector<at::Tensor> tensors_of(const std::vector<NamedTensor>& parameters) {
  std::vector<at::Tensor> tensors;
  for (const auto& entry : parameters) tensors.push_back(entry.tensor);
  return tensors;
}

/// Each parameter once: a matrix shared by several layers has several names but one gradient.
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

/// torch.nn.utils.clip_grad_norm_ with foreach=True: one kernel for all norms and one for all products,
/// without synchronizing with the device. Python divides a number by a tensor in two steps.
at::Tensor clip(const std::vector<at::Tensor>& gradients, double max_norm, double norm_type) {
  const at::NoGradGuard no_grad;
  if (gradients.empty()) return at::zeros({}, at::kFloat);
  auto norms = at::_foreach_norm(gradients, norm_type);
  for (auto& norm : norms) norm = norm.to(norms.front().device());
  const at::Tensor total = at::linalg_vector_norm(at::stack(norms), norm_type);
  if (std::isinf(max_norm)) return total;
  const at::Tensor factor = total.add(1e-6).reciprocal().mul(max_norm).clamp_max(1.0);
  std::map<at::Device, std::vector<at::Tensor>, DeviceOrder> by_device;
  for (const auto& gradient : gradients) by_device[gradient.device()].push_back(gradient);
  for (const auto& [device, list] : by_device) at::_foreach_mul_(list, factor.to(device));
  return total;
}

/// The fully sharded model that has these parameters; null if none has. Throws UsageError for only some of
/// its parameters, and for its parameters together with others.
FullyShardedDataParallelBase* sharded_model_of(const std::vector<WrappedModel>& models,
                                               const std::vector<at::Tensor>& parameters) {
  for (const auto& model : models) {
    if (model.fsdp() == nullptr) continue;
    std::set<const void*> own;
    std::size_t with_gradient = 0;
    for (const auto& entry : model.parameters()) {
      own.insert(entry.tensor.unsafeGetTensorImpl());
      if (entry.tensor.grad().defined()) ++with_gradient;
    }
    std::size_t found = 0, found_with_gradient = 0, trained = 0;
    for (const auto& parameter : parameters) {
      trained += parameter.requires_grad() ? 1 : 0;
      if (!own.contains(parameter.unsafeGetTensorImpl())) continue;
      ++found;
      if (parameter.grad().defined()) ++found_with_gradient;
    }
    if (found == 0) continue;
    if (found == trained && found_with_gradient == with_gradient) return model.fsdp();
    throw UsageError(
        "clip_grad_norm_: of a fully sharded model all parameters are clipped together, and no others. Give "
        "it the model");
  }
  return nullptr;
}

/// In the middle of a window: measured, not clipped. A fully sharded model has no gradients to measure yet.
at::Tensor norm_so_far(train::AccumulationWindow& gradients, const std::vector<at::Tensor>& parameters,
                       double norm_type) {
  if (sharded_model_of(gradients.models(), parameters) != nullptr)
    return at::full({}, std::numeric_limits<double>::quiet_NaN(), at::kFloat);
  const at::Tensor norm = clip(gradients_of(parameters), std::numeric_limits<double>::infinity(), norm_type);
  return gradients.scaling() == nullptr ? norm : norm / gradients.scaling()->get_scale();
}

}  // namespace

at::Tensor GradientAccumulation::clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm,
                                                 double norm_type) {
  if (!(max_norm > 0)) {
    throw UsageError(
        fmt::format("clip_grad_norm_: max_norm is {}, expected a number above 0 (infinity only "
                    "measures the norm)",
                    max_norm));
  }
  const auto unique = distinct(parameters);
  if (!sync_gradients()) return norm_so_far(*gradients_, unique, norm_type);
  gradients_->unscale(parameters);
  if (auto* const model = sharded_model_of(gradients_->models(), unique)) {
    if (norm_type != 2)
      throw UsageError("clip_grad_norm_: of fully sharded models only the norm of type 2 is computed");
    return model->clip_grad_norm_(max_norm);
  }
  return clip(gradients_of(unique), max_norm, norm_type);
}

at::Tensor GradientAccumulation::clip_grad_norm_(const std::vector<NamedTensor>& parameters, double max_norm,
                                                 double norm_type) {
  return clip_grad_norm_(tensors_of(parameters), max_norm, norm_type);
}

at::Tensor GradientAccumulation::clip_grad_norm_(WrappedModel model, double max_norm, double norm_type) {
  return clip_grad_norm_(model.parameters(), max_norm, norm_type);
}

void GradientAccumulation::clip_grad_value_(const std::vector<at::Tensor>& parameters, double clip_value) {
  if (!sync_gradients()) return;
  gradients_->unscale(parameters);
  torch::nn::utils::clip_grad_value_(distinct(parameters), clip_value);
}

void GradientAccumulation::clip_grad_value_(const std::vector<NamedTensor>& parameters, double clip_value) {
  clip_grad_value_(tensors_of(parameters), clip_value);
}

void GradientAccumulation::clip_grad_value_(WrappedModel model, double clip_value) {
  clip_grad_value_(model.parameters(), clip_value);
}

}  // namespace lockstep
