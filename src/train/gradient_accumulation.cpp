#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/_foreach_mul.h>
#include <fmt/core.h>
#include <algorithm>
#include <list>
#include <map>
#include <set>
#include <utility>

#include "../comm/errors.hpp"
#include "../optim/recorded_step.hpp"
#include "gradient_state.hpp"
#include "lockstep/comm/trace.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"
#include "lockstep/optim/zero_grad.hpp"
#include "lockstep/parallel/comm_hooks.hpp"
#include "lockstep/parallel/power_sgd.hpp"
#include "lockstep/train/accelerated.hpp"
#include "lockstep/train/gradient_accumulation.hpp"

namespace lockstep::train {
namespace {

at::ScalarType half_type(const std::string& name) {
  if (name == "fp16") return at::kHalf;
  if (name == "bf16") return at::kBFloat16;
  throw UsageError("comm_wrapper '" + name + "': expected no, fp16 or bf16.");
}

std::shared_ptr<CommHook> plain_hook(const std::string& name) {
  if (name == "no") return nullptr;
  if (name == "fp16" || name == "bf16") return std::make_shared<CompressHook>(half_type(name));
  if (name == "power_sgd") return std::make_shared<PowerSgdHook>();
  if (name == "batched_power_sgd") return std::make_shared<BatchedPowerSgdHook>();
  throw UsageError("comm_hook '" + name +
                   "': expected no, fp16, bf16, power_sgd or batched_power_sgd. Others are given to "
                   "register_comm_hook of the prepared model.");
}

/// The communication hook of AcceleratorOptions::comm_hook and comm_wrapper; null for "no".
std::shared_ptr<CommHook> comm_hook_by_name(const std::string& hook, const std::string& wrapper) {
  auto plain = plain_hook(hook);
  if (wrapper == "no") return plain;
  const auto type = half_type(wrapper);
  if (plain && hook.ends_with("power_sgd")) return std::make_shared<CompressWrapper>(type, std::move(plain));
  throw UsageError("comm_wrapper '" + wrapper + "' goes around a PowerSGD hook, not around '" + hook + "'.");
}

}  // namespace
}  // namespace lockstep::train

namespace lockstep {
namespace {

at::ScalarType dtype_of(MixedPrecision precision) {
  return precision == MixedPrecision::fp16 ? at::kHalf : at::kBFloat16;
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

LossWeight::LossWeight(double weight) : tensor_(at::scalar_tensor(weight, at::kDouble)) {
  if (!(weight >= 0)) throw UsageError(fmt::format("the weight of a loss must be 0 or more, not {}", weight));
}

double LossWeight::item() const { return tensor_.item<double>(); }

Autocast::Autocast(const at::Device& device, MixedPrecision precision)
    : device_(device.type()),
      was_on_(at::autocast::is_autocast_enabled(device_)),
      dtype_before_(at::autocast::get_autocast_dtype(device_)) {
  at::autocast::set_autocast_enabled(device_, precision != MixedPrecision::no);
  if (precision != MixedPrecision::no) at::autocast::set_autocast_dtype(device_, dtype_of(precision));
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  // The outermost guard drops the cached copies of parameters, because the next step changes these.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_on_);
  at::autocast::set_autocast_dtype(device_, dtype_before_);
}

GradientAccumulation::GradientAccumulation(const ProcessGroup& group, const AcceleratorOptions& options)
    : group_(group), options_(options), gradients_(std::make_shared<train::GradientState>(group, options)) {
  const auto hook = train::comm_hook_by_name(options.comm_hook, options.comm_wrapper);
  if (options.fsdp_plugin && hook)
    throw UsageError("comm_hook '" + options.comm_hook + "': fsdp_plugin has no gradients for a hook");
  if (options.fsdp_plugin && options.fsdp_plugin->mixed_precision_policy &&
      options.mixed_precision != MixedPrecision::no) {
    throw UsageError(
        "fsdp_plugin has a mixed_precision_policy beside mixed_precision: the one computes in its dtype, the "
        "other by autocast; leave one of them out");
  }
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

bool GradientAccumulation::optimizer_step_was_skipped() const noexcept { return gradients_->skipped(); }

void GradientAccumulation::unscale_gradients() { gradients_->unscale_all(); }

void GradientAccumulation::add_hook(DistributedDataParallelBase& model) {
  auto hook = train::comm_hook_by_name(options_.comm_hook, options_.comm_wrapper);
  if (hook) model.register_comm_hook(std::move(hook));
}

namespace train {
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

bool has_stepped(const GradientState& gradients, const torch::optim::Optimizer& optimizer) {
  return gradients.syncs() && !gradients.skipped(optimizer);
}

}  // namespace train

struct AccumulationStep::Silence {
  std::list<WrappedModel::NoSync> guards;
};

AccumulationStep::AccumulationStep(std::shared_ptr<train::GradientState> gradients,
                                   const std::vector<WrappedModel>& models)
    : gradients_(std::move(gradients)) {
  if (gradients_->syncs() || gradients_->sends_each_batch()) return;
  silence_ = std::make_unique<Silence>();
  for (const auto& model : models) silence_->guards.emplace_back(model);
}

AccumulationStep::~AccumulationStep() { gradients_->end(); }

void AcceleratedOptimizer::step() {
  if (gradients_ && !gradients_->syncs()) return;
  optim::check_recordable(*optimizer_);
  process_heartbeat().working("optimizer");
  const trace::Range range("optimizer");
  if (gradients_) {
    step_was_skipped_ = !gradients_->step(*optimizer_);
  } else {
    optimizer_->step();
  }
  process_heartbeat().finished_step();
}

void AcceleratedOptimizer::zero_grad(bool set_to_none) {
  if (!gradients_ || gradients_->syncs()) lockstep::zero_grad(*optimizer_, set_to_none);
}

}  // namespace lockstep
