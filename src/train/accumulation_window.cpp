#include "train/accumulation_window.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_mul.h>
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "lockstep/core/error.hpp"
#include "optim/own_optimizer.hpp"

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
at::Tensor share_of(const at::Tensor& dividend, const at::Tensor& weight) {
  const at::Tensor share = dividend / weight;
  return share.masked_fill(weight.gt(0).logical_not(), 0).reshape({});
}

/// Without synchronizing with the device: one operation per dtype and device.
void multiply(const std::vector<at::Tensor>& gradients, const at::Tensor& factor) {
  const at::NoGradGuard no_grad;
  std::map<std::pair<std::string, at::ScalarType>, std::vector<at::Tensor>> groups;
  for (const auto& gradient : gradients)
    groups[{gradient.device().str(), gradient.scalar_type()}].push_back(gradient);
  for (const auto& [kind, list] : groups)
    at::_foreach_mul_(list, factor.to(list.front().device(), kind.second, /*non_blocking=*/true));
}

/// Changes when a backward adds to the optimizer's gradients, or one is replaced.
std::uint64_t gradients_mark(const torch::optim::Optimizer& optimizer) {
  std::uint64_t mark = 0;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      const at::Tensor& gradient = parameter.grad();
      const auto address = reinterpret_cast<std::uintptr_t>(gradient.unsafeGetTensorImpl());
      const std::int64_t version = gradient.defined() && !gradient.is_inference() ? gradient._version() : 0;
      constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;
      mark = (mark ^ address ^ static_cast<std::uint64_t>(version)) * kOdd;
    }
  }
  return mark;
}

}  // namespace

AccumulationWindow::AccumulationWindow(const ProcessGroup& group, const AcceleratorOptions& options)
    : group_(group),
      options_(options.gradient_accumulation),
      sharded_(options.fsdp_plugin.has_value()),
      steps_(options.gradient_accumulation_steps) {
  check_precision(group.device(), options.mixed_precision);
  check_accumulation(options_);
  check_steps(steps_);
  if (options.fsdp_plugin && !options_.weights_of_all_ranks) {
    throw UsageError(
        "gradient accumulation: fsdp_plugin keeps no gradients of a single rank that could be weighted: "
        "leave "
        "weights_of_all_ranks on.");
  }
  if (options.mixed_precision == MixedPrecision::fp16)
    scaling_.emplace(options.grad_scaler, options.fsdp_plugin ? std::optional(group) : std::nullopt);
}

void AccumulationWindow::set_steps(std::int64_t steps) {
  check_steps(steps);
  steps_ = steps;
  look_ahead();
}

/// Reads ahead, so that a window's first batch knows how many batches the window has.
void AccumulationWindow::look_ahead() const {
  for (const auto& loader : loaders_) loader.set_look_ahead(steps_ - 1);
}

void AccumulationWindow::derive_steps(std::int64_t batch_size) {
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

void AccumulationWindow::add_loader(DataLoader::Position loader, std::int64_t batch_size) {
  derive_steps(batch_size);
  loaders_.push_back(std::move(loader));
  look_ahead();
}

void AccumulationWindow::clear() {
  models_.clear();
  owners_.clear();
  if (scaling_) scaling_->clear();
  optimizers_.clear();
  at_begin_.clear();
  stepped_.clear();
  loaders_.clear();
  passes_ = {};
  keeps_gradients_ = false;
  done_ = 0;
  syncs_ = true;
}

AccumulationWindow::Mark AccumulationWindow::mark() const noexcept {
  return {.models = models_.size(),
          .loaders = loaders_.size(),
          .optimizers = optimizers_.size(),
          .steps = steps_,
          .global_batch_size = options_.global_batch_size};
}

void AccumulationWindow::return_to(const Mark& mark) {
  const auto keep_first = [](auto& list, std::size_t count) {
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(std::min(count, list.size())), list.end());
  };
  keep_first(models_, mark.models);
  keep_first(owners_, mark.models);
  keep_first(loaders_, mark.loaders);
  keep_first(optimizers_, mark.optimizers);
  at_begin_.clear();
  stepped_.clear();
  passes_ = {};
  if (scaling_) scaling_->keep_first(mark.optimizers);
  options_.global_batch_size = mark.global_batch_size;
  done_ = 0;
  syncs_ = true;
  set_steps(mark.steps);
}

void AccumulationWindow::begin_step() {
  const bool follows = options_.sync_with_dataloader;
  if (follows) {
    passes_.look(loaders_);
    if (done_ > 0 && passes_.is_abandoned()) abandon();
  }
  if (done_ == 0) {
    passes_.begin_window();
    length_ = steps_;
    if (follows) length_ = std::min(length_, passes_.remaining().value_or(length_));
    weighted_.reset();
    weight_.reset();
    divided_by_.reset();
  }
  weighted_losses_ = 0;
  ++done_;
  inside_ = true;
  syncs_ = done_ >= length_ || (follows && passes_.at_end());
  stepped_.clear();
  if (done_ > 1 && !syncs_) return;
  at_begin_.clear();
  for (const auto& [optimizer, alive] : optimizers_) {
    if (!alive.expired()) at_begin_[optimizer] = gradients_mark(*optimizer);
  }
}

bool AccumulationWindow::may_clear(const torch::optim::Optimizer& optimizer) const {
  const auto begin = at_begin_.find(&optimizer);
  if (!inside_ || begin == at_begin_.end() || stepped_.contains(&optimizer)) return syncs_;
  const bool changed = gradients_mark(optimizer) != begin->second;
  return changed ? syncs_ : done_ == 1;
}

/// Its gradients would become part of the next step, divided by another number or weight.
void AccumulationWindow::abandon() {
  done_ = 0;
  for (const auto& model : models_) model.zero_grad();
}

void AccumulationWindow::discard() {
  abandon();
  inside_ = false;
  syncs_ = true;
  stepped_.clear();
  at_begin_.clear();
  passes_ = {};
  weighted_.reset();
  weighted_losses_ = 0;
  weight_.reset();
  divided_by_.reset();
}

void AccumulationWindow::end() noexcept {
  if (syncs_) done_ = 0;
  inside_ = false;
}

/// What has been computed before would be divided by the weights, or not divided. In a window of one
/// micro-batch nothing has.
void AccumulationWindow::demand_kind(bool weighted) {
  if (!inside_) {
    // Outside a window, every backward is a step.
    syncs_ = true;
    return;
  }
  const bool is_whole_window = done_ == 1 && syncs_;
  if (!is_whole_window && weighted_.value_or(weighted) != weighted) {
    throw UsageError(
        "backward(loss) and backward(sum, weight) cannot be mixed in one accumulation window: one is a "
        "mean, the other a sum.");
  }
  weighted_ = weighted;
}

at::Tensor AccumulationWindow::scaled(const at::Tensor& loss) {
  return scaling_ ? scaling_->scale(loss) : loss;
}

void AccumulationWindow::backward(const at::Tensor& loss) {
  demand_kind(false);
  scaled(inside_ && length_ > 1 ? loss / length_ : loss).backward();
  if (!inside_ || !syncs_ || done_ >= length_) return;
  // The loop has ended before the window was full.
  const double part = static_cast<double>(length_) / static_cast<double>(done_);
  multiply(gradients_of(models_), at::scalar_tensor(part, at::kDouble));
  length_ = done_;
}

/// A weight on the device stays there, and one of the host is sent without waiting for the forward pass.
at::Tensor AccumulationWindow::weight_so_far(const at::Tensor& weight) {
  at::Tensor all = weight.detach().to(at::kDouble).reshape({1});
  if (all.is_cpu()) all = all.to(group_.object_device(), /*non_blocking=*/true);
  if (!inside_) return all;
  const bool adds = weight_.defined() && weighted_losses_ == 1;
  if (!keeps_place_) {
    weight_ = adds ? weight_ + all.to(weight_.device()) : all;
    return weight_;
  }
  if (!place_of_weight_.defined()) place_of_weight_ = at::zeros_like(all);
  weight_ = place_of_weight_;
  return adds ? weight_.add_(all) : weight_.copy_(all);
}

void AccumulationWindow::set_memory(Memory memory) {
  weighted_ = memory.weighted;
  weighted_losses_ = memory.weighted_losses;
  weight_ = std::move(memory.weight);
  divided_by_ = std::move(memory.divided_by);
}

void AccumulationWindow::was_replayed(bool weighted) {
  demand_kind(weighted);
  if (!weighted) return;
  weighted_losses_ = 1;
  weight_ = place_of_weight_;
}

/// The gradient of a weighted mean, sum(losses) / sum(weights) over micro-batches and ranks, while each
/// backward knows only its own sum and weight, and the total is known with the last one.
///
/// Gradients are divided before they are sent, not after: sums over thousands of tokens would overflow in
/// float16, and mislead hooks that keep the errors of earlier steps. So the loss is multiplied by ranks / W,
/// where W is the weight of the window so far over all ranks, and `ranks` makes up for the division by their
/// number in DistributedDataParallel. With n micro-batches of weights w1, ..., wn, the window goes
///
///     backward k < n   g = g + gk                            (not sent, not divided)
///     backward n       g = g * ranks / W + gn * ranks / W    W = w1 + ... + wn over all ranks; sent
///
/// If each micro-batch is sent (sync_each_batch), backward k is g = g * W' / W + gk * ranks / W, where W' is
/// the W of the one before (divided_by_; undefined while g is a sum). Without weights_of_all_ranks, W is this
/// rank's own weight, and 1 stands for `ranks`. With sharded parameters the earlier micro-batches are reduced
/// within the last backward and cannot be scaled before it: there the sums are sent as they are and divided
/// at the end (backward_of_sharded). Scaling applies to all gradients of the models, so a window cannot mix
/// losses with and without a weight (demand_kind).
void AccumulationWindow::backward(const at::Tensor& sum, const at::Tensor& weight) {
  demand_kind(true);
  if (inside_ && ++weighted_losses_ > 1 && std::max(length_, done_) > 1) {
    throw UsageError(fmt::format(
        "backward(sum, weight) was called twice for a micro-batch of a window of {}: their gradients are "
        "divided by the weights when the window ends, and cannot be told apart. Add the sums and give their "
        "common weight, or set gradient_accumulation_steps to 1.",
        std::max(length_, done_)));
  }
  const at::Tensor all = weight_so_far(weight);
  if (!syncs_ && !options_.sync_each_batch) return scaled(sum).backward();
  if (sharded_ && !options_.sync_each_batch && inside_ && done_ > 1) return backward_of_sharded(sum, all);
  backward_divided(sum, all);
}

void AccumulationWindow::backward_divided(const at::Tensor& sum, const at::Tensor& weight) {
  const at::Tensor all = options_.weights_of_all_ranks ? weight.clone() : weight;
  if (options_.weights_of_all_ranks) group_.all_reduce(all);
  // DistributedDataParallel divides the sum over all ranks by their number.
  const double ranks = options_.weights_of_all_ranks ? group_.size() : 1;
  if (inside_ && done_ > 1) {
    const at::Tensor before = divided_by_.defined() ? divided_by_ : at::full_like(all, ranks);
    multiply(gradients_of(models_), share_of(before, all));
  }
  if (inside_) divided_by_ = all;
  const at::Tensor share = share_of(at::full_like(all, ranks), all);
  scaled(sum * share.to(sum.device(), sum.scalar_type(), /*non_blocking=*/true)).backward();
}

/// The gradients of the window's earlier micro-batches are reduced in this backward, and not seen before.
void AccumulationWindow::backward_of_sharded(const at::Tensor& sum, const at::Tensor& weight) {
  const at::Tensor all = weight.clone();
  // Overlaps with backward.
  Work exchange = group_.all_reduce_async(all);
  scaled(sum).backward();
  exchange.wait();
  multiply(gradients_of(models_), share_of(at::full_like(all, static_cast<double>(group_.size())), all));
}

void AccumulationWindow::unscale_all() {
  if (scaling_ && syncs_) scaling_->unscale_all();
}

void AccumulationWindow::unscale(const std::vector<at::Tensor>& parameters) {
  if (scaling_ && syncs_) scaling_->unscale(parameters);
}

optim::StepOutcome AccumulationWindow::step(torch::optim::Optimizer& optimizer, const at::Tensor& factor) {
  stepped_.insert(&optimizer);
  ++optimizer_steps_;
  if (scaling_) return scaling_->step(optimizer, factor);
  optim::step_multiplied(optimizer, factor);
  return true;
}

}  // namespace lockstep::train
