#include "gradient_state.hpp"

#include <ATen/ATen.h>
#include <ATen/ops/_foreach_mul.h>
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep::train {
namespace {

void check_precision(const at::Device& device, MixedPrecision precision) {
  if (precision != MixedPrecision::fp16 || device.is_cuda()) return;
  throw UsageError(
      "mixed precision fp16 needs a CUDA device: on CPUs float16 is slow and loses accuracy. Use bf16, or no "
      "mixed precision.");
}

void check_steps(std::int64_t steps) {
  if (steps < 1)
    throw UsageError(fmt::format("gradient_accumulation_steps must be at least 1, not {}", steps));
}

void check_accumulation(const GradientAccumulationOptions& options) {
  if (options.global_batch_size < 0)
    throw UsageError("gradient accumulation: global_batch_size must be 0 or more.");
  if (options.sync_each_batch && !options.weights_of_all_ranks) {
    throw UsageError(
        "gradient accumulation: with sync_each_batch the ranks' gradients are mixed before their weights are "
        "known: leave weights_of_all_ranks on.");
  }
}

/// All defined gradients, those of a shared parameter once.
std::vector<at::Tensor> gradients_of(const std::vector<WrappedModel>& models) {
  std::vector<at::Tensor> gradients;
  std::set<const void*> seen;
  for (const auto& model : models) {
    for (const auto& entry : model.parameters()) {
      const at::Tensor& gradient = entry.tensor.grad();
      if (gradient.defined() && seen.insert(entry.tensor.unsafeGetTensorImpl()).second)
        gradients.push_back(gradient);
    }
  }
  return gradients;
}

/// dividend / weight as a scalar on the weight's device; 0 if the weight is 0.
at::Tensor share_of(double dividend, const at::Tensor& weight) {
  const at::Tensor share = at::full_like(weight, dividend) / weight;
  return share.masked_fill(weight.gt(0).logical_not(), 0).reshape({});
}

/// Multiplies the gradients by share_of() without synchronizing with the device: one operation per dtype and
/// device.
void multiply_by_share(const std::vector<at::Tensor>& gradients, double dividend, const at::Tensor& weight) {
  const at::NoGradGuard no_grad;
  const at::Tensor share = share_of(dividend, weight);
  std::map<std::pair<std::string, at::ScalarType>, std::vector<at::Tensor>> groups;
  for (const auto& gradient : gradients)
    groups[{gradient.device().str(), gradient.scalar_type()}].push_back(gradient);
  for (const auto& [kind, list] : groups)
    at::_foreach_mul_(list, share.to(list.front().device(), kind.second, /*non_blocking=*/true));
}

}  // namespace

GradientState::GradientState(const ProcessGroup& group, const AcceleratorOptions& options)
    : group_(group), options_(options.gradient_accumulation), steps_(options.gradient_accumulation_steps) {
  check_precision(group.device(), options.mixed_precision);
  check_accumulation(options_);
  check_steps(steps_);
  if (options.fsdp_plugin && !options_.weights_of_all_ranks) {
    throw UsageError(
        "gradient accumulation: fsdp_plugin keeps no gradients of a rank's own to be weighed: leave "
        "weights_of_all_ranks on.");
  }
  if (options.mixed_precision == MixedPrecision::fp16)
    scaling_.emplace(options.grad_scaler, options.fsdp_plugin ? std::optional(group) : std::nullopt);
}

void GradientState::set_steps(std::int64_t steps) {
  check_steps(steps);
  steps_ = steps;
  look_ahead();
}

/// Reads ahead, so that a window's first batch knows how many batches the window has.
void GradientState::look_ahead() const {
  for (const auto& loader : loaders_) loader.set_look_ahead(steps_ - 1);
}

void GradientState::derive_steps(std::int64_t batch_size) {
  if (options_.global_batch_size == 0) return;
  const std::int64_t at_once = batch_size * group_.size();
  if (options_.global_batch_size % at_once != 0) {
    throw UsageError(
        fmt::format("a global batch of {} samples is not a multiple of {} ranks with batches of {}. Change "
                    "the batch size of the loader, or the global batch.",
                    options_.global_batch_size, group_.size(), batch_size));
  }
  steps_ = options_.global_batch_size / at_once;
  options_.global_batch_size = 0;
}

void GradientState::add_loader(DataLoader::Position loader, std::int64_t batch_size) {
  derive_steps(batch_size);
  loaders_.push_back(std::move(loader));
  look_ahead();
}

void GradientState::clear() {
  models_.clear();
  owners_.clear();
  if (scaling_) scaling_->clear();
  loaders_.clear();
  done_ = 0;
}

GradientState::Mark GradientState::mark() const noexcept {
  return {.models = models_.size(),
          .loaders = loaders_.size(),
          .optimizers = scaling_ ? scaling_->optimizers() : 0,
          .steps = steps_,
          .global_batch_size = options_.global_batch_size};
}

void GradientState::return_to(const Mark& mark) {
  const auto keep_first = [](auto& list, std::size_t count) {
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(std::min(count, list.size())), list.end());
  };
  keep_first(models_, mark.models);
  keep_first(owners_, mark.models);
  keep_first(loaders_, mark.loaders);
  if (scaling_) scaling_->keep_first(mark.optimizers);
  options_.global_batch_size = mark.global_batch_size;
  done_ = 0;
  set_steps(mark.steps);
}

/// Progress of the pass that began last.
std::optional<DataLoaderProgress> GradientState::progress() const {
  std::optional<DataLoaderProgress> latest;
  for (const auto& loader : loaders_) {
    const auto progress = loader.progress();
    if (progress && (!latest || progress->pass > latest->pass)) latest = progress;
  }
  return latest;
}

void GradientState::begin_step() { begin(progress()); }

void GradientState::begin(const std::optional<DataLoaderProgress>& progress) {
  const bool follows = options_.sync_with_dataloader && progress.has_value();
  // If a pass is abandoned in the middle of a window, the window is discarded.
  if (follows && progress->pass != pass_ && done_ > 0) discard_window();
  if (done_ == 0) {
    length_ = steps_;
    if (follows) length_ = std::min(length_, progress->size - progress->position + 1);
    weighted_.reset();
    weight_.reset();
  }
  if (follows) pass_ = progress->pass;
  ++done_;
  inside_ = true;
  syncs_ = done_ >= length_ || (follows && progress->position >= progress->size);
}

/// Its gradients would become part of the next step, divided by another number or weight.
void GradientState::discard_window() {
  done_ = 0;
  for (const auto& model : models_) model.zero_grad();
}

void GradientState::end() noexcept {
  if (syncs_) done_ = 0;
  // Outside a window, every backward is a step.
  inside_ = false;
  syncs_ = true;
}

/// A sum of means and a weighted sum cannot be mixed.
void GradientState::demand_kind(bool weighted) {
  if (!inside_) return;
  if (weighted_.value_or(weighted) != weighted) {
    throw UsageError(
        "backward(loss) and backward(sum, weight) cannot be mixed in one accumulation window: the one is a "
        "mean, the other a sum.");
  }
  weighted_ = weighted;
  if (syncs_) weighted_.reset();
}

at::Tensor GradientState::scaled(const at::Tensor& loss) { return scaling_ ? scaling_->scale(loss) : loss; }

void GradientState::backward(const at::Tensor& loss) {
  demand_kind(false);
  scaled(inside_ && length_ > 1 ? loss / length_ : loss).backward();
}

/// A weight on the device stays there, and one of the host is sent without waiting for the forward pass.
void GradientState::backward(const at::Tensor& sum, const at::Tensor& weight) {
  demand_kind(true);
  at::Tensor all = weight.detach().to(at::kDouble).reshape({1});
  if (all.is_cpu()) all = all.to(group_.object_device(), /*non_blocking=*/true);
  if (inside_) {
    weight_ = weight_.defined() ? weight_ + all.to(weight_.device()) : all;
    all = weight_;
  }
  if (!syncs_) return scaled(sum).backward();
  if (!options_.weights_of_all_ranks) return backward_by_own(sum, all);
  all = all.clone();
  // Overlaps with backward.
  Work exchange = group_.all_reduce_async(all);
  scaled(sum).backward();
  exchange.wait();
  // DistributedDataParallel has divided the sum over all ranks by their number.
  multiply_by_share(gradients_of(models_), group_.size(), all);
}

/// DistributedDataParallel averages the ranks' means, so accumulated gradients must be divided before it
/// does.
void GradientState::backward_by_own(const at::Tensor& sum, const at::Tensor& weight) {
  multiply_by_share(gradients_of(models_), 1, weight);
  const at::Tensor share = share_of(1, weight).to(sum.device(), sum.scalar_type(), /*non_blocking=*/true);
  scaled(sum * share).backward();
}

void GradientState::unscale_all() {
  if (scaling_ && syncs_) scaling_->unscale_all();
}

void GradientState::unscale(const std::vector<at::Tensor>& parameters) {
  if (scaling_ && syncs_) scaling_->unscale(parameters);
}

bool GradientState::step(torch::optim::Optimizer& optimizer) {
  if (scaling_) return scaling_->step(optimizer);
  optimizer.step();
  return true;
}

}  // namespace lockstep::train
