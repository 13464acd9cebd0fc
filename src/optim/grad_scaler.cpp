#include "lockstep/optim/grad_scaler.hpp"

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <nlohmann/json.hpp>

#include "core/json_text.hpp"
#include "lockstep/core/error.hpp"
#include "recorded_step.hpp"

namespace lockstep::optim {
namespace {

using DtypeAndDevice = std::pair<at::ScalarType, std::string>;

/// The gradients, of sparse ones the values, grouped by kernel call.
std::map<DtypeAndDevice, std::vector<at::Tensor>> gradients_of(torch::optim::Optimizer& optimizer) {
  std::map<DtypeAndDevice, std::vector<at::Tensor>> lists;
  for (auto& group : optimizer.param_groups()) {
    for (auto& parameter : group.params()) {
      const at::Tensor gradient = parameter.grad();
      if (!gradient.defined()) continue;
      if (gradient.scalar_type() == at::kHalf) {
        throw UsageError(
            "GradScaler: the optimizer has float16 gradients. Keep the parameters in float32; autocast "
            "computes in float16.");
      }
      lists[{gradient.scalar_type(), gradient.device().str()}].push_back(
          gradient.is_sparse() ? gradient._values() : gradient);
    }
  }
  return lists;
}

void check_scaler_options(const GradScalerOptions& options) {
  const bool fits = options.init_scale > 0 && options.growth_factor > 1 && options.backoff_factor > 0 &&
                    options.backoff_factor < 1 && options.growth_interval > 0;
  if (fits) return;
  throw UsageError(
      "GradScaler: init_scale and growth_interval must be above 0, growth_factor above 1, and backoff_factor "
      "between 0 and 1.");
}

}  // namespace

GradScaler::GradScaler(const GradScalerOptions& options, std::optional<ProcessGroup> group)
    : options_(options), group_(std::move(group)) {
  check_scaler_options(options);
  scale_ = at::full({1}, options.init_scale, at::kFloat);
  growth_ = at::zeros({1}, at::kInt);
}

at::Tensor GradScaler::scale(const at::Tensor& loss) {
  scale_ = scale_.to(loss.device());
  growth_ = growth_.to(loss.device());
  return loss * scale_.squeeze();
}

void GradScaler::unscale(torch::optim::Optimizer& optimizer) {
  Seen& seen = seen_[&optimizer];
  if (seen.found_inf.defined()) return;
  // In double precision: the reciprocal of a large scale would otherwise lose bits.
  const at::Tensor inverse = scale_.to(at::kDouble).reciprocal().to(at::kFloat);
  seen.found_inf = at::zeros({1}, scale_.options());
  for (auto& [kind, gradients] : gradients_of(optimizer)) {
    at::Tensor found = at::zeros({1}, gradients.front().options().dtype(at::kFloat));
    at::_amp_foreach_non_finite_check_and_unscale_(gradients, found, inverse.to(found.device()));
    seen.found_inf.add_(found.to(seen.found_inf.device()));
  }
  if (group_) group_->all_reduce(seen.found_inf, ReduceOp::max);
}

bool GradScaler::step(torch::optim::Optimizer& optimizer) {
  if (recorded_for({scale_}) != nullptr) {
    throw UsageError(
        "GradScaler: a step waits until the device knows whether all gradients are finite, so a CUDA graph "
        "cannot record it. Use bf16, which needs no scaling.");
  }
  unscale(optimizer);
  Seen& seen = seen_[&optimizer];
  if (seen.stepped) throw UsageError("GradScaler: step() was called twice for an optimizer before update().");
  seen.stepped = true;
  if (seen.found_inf.item<float>() != 0) return false;
  optimizer.step();
  return true;
}

void GradScaler::update() {
  at::Tensor found = at::zeros({1}, scale_.options());
  for (const auto& entry : seen_) {
    if (entry.second.found_inf.defined()) found.add_(entry.second.found_inf.to(found.device()));
  }
  at::_amp_update_scale_(scale_, growth_, found, options_.growth_factor, options_.backoff_factor,
                         options_.growth_interval);
  seen_.clear();
}

double GradScaler::get_scale() const { return scale_.item<float>(); }

std::string GradScaler::state_dict() const {
  return json_text(nlohmann::json{{"scale", get_scale()}, {"growth_tracker", growth_.item<int>()}});
}

void GradScaler::load_state_dict(const std::string& text) {
  try {
    const auto document = nlohmann::json::parse(text);
    scale_.fill_(document.at("scale").get<double>());
    growth_.fill_(document.at("growth_tracker").get<int>());
  } catch (const nlohmann::json::exception& error) {
    throw DataError(std::string("the state of a GradScaler cannot be read: ") + error.what());
  }
  seen_.clear();
}

}  // namespace lockstep::optim
