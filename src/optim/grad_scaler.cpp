#include "lockstep/optim/grad_scaler.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "core/json_text.hpp"
#include "lockstep/core/error.hpp"
#include "optim/late_number.hpp"
#include "optim/own_optimizer.hpp"
#include "optim/recorded_step.hpp"
#include "optim/step_factors.hpp"
#include "optim/unscaled_gradients.hpp"

namespace lockstep::optim {
namespace {

using DtypeAndDevice = std::pair<at::ScalarType, std::string>;
/// Gradients, of sparse ones the values, grouped by kernel call.
using GradientLists = std::map<DtypeAndDevice, std::vector<at::Tensor>>;

void add(GradientLists& lists, const at::Tensor& gradient) {
  if (gradient.scalar_type() == at::kHalf) {
    throw UsageError(
        "GradScaler: the optimizer has float16 gradients. Keep the parameters in float32; autocast "
        "computes in float16.");
  }
  lists[{gradient.scalar_type(), gradient.device().str()}].push_back(gradient.is_sparse() ? gradient._values()
                                                                                          : gradient);
}

struct Gradients {
  GradientLists scaled, unscaled;
  /// To which scaled ones may have been added when they were unscaled.
  std::vector<at::Tensor> mixed;
  std::vector<at::Tensor> all;
};

Gradients gradients_of(const torch::optim::Optimizer& optimizer, const UnscaledGradients& known) {
  Gradients result;
  std::size_t index = 0;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      const auto state = known.state_of(index++, parameter);
      const at::Tensor gradient = parameter.grad();
      if (!gradient.defined()) continue;
      result.all.push_back(gradient);
      if (state == UnscaledGradients::State::mixed) result.mixed.push_back(gradient);
      add(state == UnscaledGradients::State::unscaled ? result.unscaled : result.scaled, gradient);
    }
  }
  return result;
}

/// Multiplies by `inverse` and adds to `found` whether any result is not finite.
void unscale_lists(const GradientLists& lists, const at::Tensor& inverse, const at::Tensor& found) {
  for (const auto& [kind, gradients] : lists) {
    at::Tensor here = at::zeros({1}, gradients.front().options().dtype(at::kFloat));
    at::_amp_foreach_non_finite_check_and_unscale_(gradients, here, inverse.to(here.device()));
    found.add_(here.to(found.device()));
  }
}

StepOutcome step_if_finite(torch::optim::Optimizer& optimizer, const at::Tensor& found_inf,
                           const at::Tensor& factor) {
  FusedOptimizer* const own = find_own(optimizer);
  if (own != nullptr && own->can_leave_out_step()) {
    own->step_by({.found_inf = found_inf, .factor = factor});
    return StepOutcome::of(found_inf);
  }
  if (recorded_for({found_inf}) != nullptr) {
    throw UsageError(
        "GradScaler: the step of this optimizer waits until the device knows whether all gradients are "
        "finite, "
        "so a CUDA graph cannot record it. Use Adam, AdamW or SGD of lockstep::optim, and let warmup_steps "
        "cover the first step of SGD with momentum");
  }
  const bool steps = found_inf.item<float>() == 0;
  if (steps) step_multiplied(optimizer, factor);
  return steps;
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

UnscaledGradients* GradScaler::find_known(const torch::optim::Optimizer& optimizer) const {
  for (const auto& [one, known] : known_) {
    if (one == &optimizer) return known.get();
  }
  return nullptr;
}

void GradScaler::watch(const torch::optim::Optimizer& optimizer) {
  if (find_known(optimizer) != nullptr) return;
  known_.emplace_back(&optimizer, std::make_shared<UnscaledGradients>()).second->watch(optimizer);
}

bool GradScaler::drop_left_out_steps() {
  bool any = false;
  for (const auto& [optimizer, known] : known_) {
    if (!known->remembers()) continue;
    if (!known->has_stepped()) {
      if (is_true_on_any(!known->were_cleared())) continue;
      seen_[optimizer].found_inf.reset();
      any = true;
    }
    // After a step, gradients are cleared; those that are not count as scaled, as in PyTorch.
    known->forget();
  }
  return any;
}

at::Tensor GradScaler::scale(const at::Tensor& loss) {
  drop_left_out_steps();
  for (auto& entry : known_) entry.second->loss_was_scaled();
  for (auto& entry : seen_) entry.second.newer_loss = true;
  scale_ = scale_.to(loss.device());
  growth_ = growth_.to(loss.device());
  keeps_memory_ = keeps_memory_ || recorded_for({scale_}) != nullptr;
  scale_of_last_loss_ = keeps_memory_ ? scale_.clone() : scale_;
  return loss * scale_of_last_loss_.squeeze();
}

bool GradScaler::is_true_on_any(bool here) const {
  if (!group_) return here;
  const at::Tensor flag =
      at::full({1}, here ? 1 : 0, at::TensorOptions(group_->object_device()).dtype(at::kInt));
  group_->all_reduce(flag, ReduceOp::max);
  return flag.item<int>() != 0;
}

void GradScaler::unscale(torch::optim::Optimizer& optimizer) {
  Seen& seen = seen_[&optimizer];
  if (seen.stepped && seen.newer_loss) {
    throw UsageError(
        "GradScaler: a loss was scaled after the optimizer's step(), without update(): call update() after "
        "the "
        "steps of all optimizers.");
  }
  if (seen.found_inf.defined() && !seen.newer_loss) return;
  // Of an optimizer that was not known, update() could not adapt the gradients.
  const at::Tensor scale = find_known(optimizer) != nullptr ? scale_ : scale_of_last_loss_;
  watch(optimizer);
  UnscaledGradients& known = *find_known(optimizer);
  const Gradients gradients = gradients_of(optimizer, known);
  // No step is made with gradients that are not finite, whatever their factor.
  if (known.waits_for_step_after_loss() && is_true_on_any(have_values(gradients.mixed)) &&
      !is_true_on_any(!are_finite(gradients.all))) {
    throw UsageError(
        "GradScaler: gradients that were unscaled (or clipped, which unscales) before a further loss was "
        "scaled "
        "have changed since, so they are a mixture. Step the optimizer or clear its gradients before the "
        "next "
        "backward.");
  }
  if (!scale_of_last_loss_.defined() && !gradients.scaled.empty()) {
    throw UsageError(
        "GradScaler: the optimizer has gradients, but no loss was scaled: backward needs scale(loss), in an "
        "Accelerator backward(loss).");
  }
  // In double precision: the reciprocal of a large scale would otherwise lose bits.
  const at::Tensor inverse = (scale.defined() ? scale : scale_).to(at::kDouble).reciprocal().to(at::kFloat);
  const at::Tensor found = at::zeros({1}, scale_.options());
  unscale_lists(gradients.scaled, inverse, found);
  unscale_lists(gradients.unscaled, at::ones_like(inverse), found);
  // Of several kinds of gradients, each adds 1, and kernels of optimizers compare with 1.
  if (gradients.scaled.size() + gradients.unscaled.size() > 1) found.clamp_max_(1);
  if (group_) group_->all_reduce(found, ReduceOp::max);
  // After the step, for example to log a norm: the step was not left out.
  const bool after_step = known.has_stepped() && gradients.scaled.empty();
  known.remember(optimizer);
  if (after_step) known.mark_stepped();
  seen.found_inf = found;
  seen.newer_loss = false;
  if (!gradients.scaled.empty() || !gradients.unscaled.empty())
    found_inf_ = found_inf_.defined() ? found_inf_.to(found.device()).add_(found) : found.clone();
}

StepOutcome GradScaler::step(torch::optim::Optimizer& optimizer) { return step_by(optimizer, {}); }

StepOutcome GradScaler::step_by(torch::optim::Optimizer& optimizer, const at::Tensor& factor) {
  if (seen_[&optimizer].stepped)
    throw UsageError("GradScaler: step() was called twice for an optimizer before update().");
  unscale(optimizer);
  Seen& seen = seen_[&optimizer];
  seen.outcome = step_if_finite(optimizer, seen.found_inf, factor);
  seen.stepped = true;
  UnscaledGradients& known = *find_known(optimizer);
  known.remember(optimizer);
  known.mark_stepped();
  return seen.outcome;
}

/// Gradients that wait for their step were scaled as before.
void GradScaler::adapt_gradients(const at::Tensor& before) const {
  const at::NoGradGuard no_grad;
  at::Tensor ratio;
  std::set<const void*> adapted;
  for (const auto& entry : known_) {
    for (const at::Tensor& gradient : entry.second->scaled()) {
      if (!adapted.insert(gradient.unsafeGetTensorImpl()).second) continue;
      if (!ratio.defined()) ratio = scale_.to(at::kDouble).div(before.to(at::kDouble)).squeeze();
      const at::Tensor values = gradient.is_sparse() ? gradient._values() : gradient;
      values.mul_(ratio.to(values.device(), /*non_blocking=*/true));
    }
  }
}

void GradScaler::set_scale(const at::Tensor& next) {
  const at::NoGradGuard no_grad;
  if (!keeps_memory_) {
    const at::Tensor before = std::exchange(scale_, next);
    return adapt_gradients(before);
  }
  const at::Tensor before = scale_.clone();
  scale_.copy_(next);
  adapt_gradients(before);
}

void GradScaler::update() {
  if (seen_.empty() && !found_inf_.defined())
    throw UsageError("GradScaler: update() without a step() or an unscale() since the last one.");
  if (found_inf_.defined()) {
    at::Tensor next = scale_.clone();
    at::_amp_update_scale_(next, growth_, found_inf_.to(next.device()), options_.growth_factor,
                           options_.backoff_factor, options_.growth_interval);
    set_scale(next);
  }
  look_whether_lost();
  seen_.clear();
  found_inf_.reset();
}

/// Whether the reciprocal of the scale will soon be infinite. Only looked at after steps that were skipped,
/// and after those whose outcome only the device knows, without waiting for it.
void GradScaler::look_whether_lost() {
  double scale = 1;
  bool is_open = false;
  for (const auto& [optimizer, seen] : seen_) {
    if (seen.outcome.is_late()) {
      is_open = true;
    } else if (!seen.outcome) {
      scale = get_scale();
    }
  }
  if (late_scale_ != nullptr && late_scale_->has_arrived())
    scale = std::min(scale, std::exchange(late_scale_, nullptr)->get());
  if (is_open && late_scale_ == nullptr && recorded_for({scale_}) == nullptr)
    late_scale_ = std::make_shared<LateNumber>(scale_);
  if (scale >= std::numeric_limits<float>::min()) return;
  seen_.clear();
  found_inf_.reset();
  throw Error(
      "GradScaler: the gradients of all the last steps were not finite, although the loss scale has fallen "
      "to "
      "2^-127: the loss or the gradients are NaN or infinite whatever the scale. Look at the data and at "
      "what "
      "the model computes in float16");
}

void GradScaler::forget(const torch::optim::Optimizer& optimizer) {
  seen_.erase(&optimizer);
  std::erase_if(known_, [&](const auto& entry) { return entry.first == &optimizer; });
}

double GradScaler::get_scale() const { return scale_.item<float>(); }

std::string GradScaler::state_dict() const {
  return json_text(nlohmann::json{{"scale", get_scale()}, {"growth_tracker", growth_.item<int>()}});
}

void GradScaler::load_state_dict(const std::string& text) {
  try {
    const auto document = nlohmann::json::parse(text);
    const auto scale = document.at("scale").get<double>();
    growth_.fill_(document.at("growth_tracker").get<int>());
    set_scale(at::full_like(scale_, scale));
    late_scale_.reset();
  } catch (const nlohmann::json::exception& error) {
    throw DataError(std::string("the state of a GradScaler cannot be read: ") + error.what());
  }
  seen_.clear();
  found_inf_.reset();
}

}  // namespace lockstep::optim
