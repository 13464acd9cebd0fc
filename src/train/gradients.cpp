#include "gradients.hpp"

#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <list>
#include <set>

#include "lockstep/comm/trace.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"
#include "lockstep/optim/zero_grad.hpp"
#include "lockstep/train/accelerated_optimizer.hpp"
#include "lockstep/train/accelerated_scheduler.hpp"

namespace lockstep {
namespace train {
namespace {

void check_precision(const at::Device& device, MixedPrecision precision) {
  if (precision != MixedPrecision::fp16 || device.is_cuda()) return;
  throw UsageError(
      "mixed precision fp16 needs a CUDA device: on CPUs float16 is slow and loses accuracy. Use bf16, or no "
      "mixed precision.");
}

void check_accumulation(const GradientAccumulationOptions& options) {
  if (options.steps < 1 || options.global_batch_size < 0) {
    throw UsageError("gradient accumulation: steps must be at least 1, not " + std::to_string(options.steps) +
                     ", and global_batch_size 0 or more.");
  }
  if (options.sync_each_batch && !options.weights_of_all_ranks) {
    throw UsageError(
        "gradient accumulation: with sync_each_batch the ranks' gradients are mixed before their weights are "
        "known: leave weights_of_all_ranks on.");
  }
}

/// The gradients that are there, of each parameter once.
std::vector<at::Tensor> gradients_of(
    const std::vector<std::shared_ptr<DistributedDataParallelBase>>& models) {
  std::vector<at::Tensor> gradients;
  std::set<const void*> seen;
  for (const auto& model : models) {
    for (const auto& entry : model->parameters()) {
      const at::Tensor& gradient = entry.tensor.grad();
      if (gradient.defined() && seen.insert(entry.tensor.unsafeGetTensorImpl()).second)
        gradients.push_back(gradient);
    }
  }
  return gradients;
}

}  // namespace

Gradients::Gradients(const ProcessGroup& group, const GradientAccumulationOptions& options,
                     MixedPrecision precision, const optim::GradScalerOptions& scaler)
    : group_(group), options_(options) {
  check_precision(group.device(), precision);
  check_accumulation(options);
  if (precision == MixedPrecision::fp16) scaling_.emplace(scaler);
}

void Gradients::set_steps(std::int64_t steps) {
  GradientAccumulationOptions changed = options_;
  changed.steps = steps;
  check_accumulation(changed);
  options_ = changed;
}

void Gradients::derive_steps(std::int64_t batch_size) {
  if (options_.global_batch_size == 0) return;
  const std::int64_t at_once = batch_size * group_.size();
  if (options_.global_batch_size % at_once != 0) {
    throw UsageError("a global batch of " + std::to_string(options_.global_batch_size) +
                     " samples is no whole number of steps of " + std::to_string(group_.size()) +
                     " ranks with batches of " + std::to_string(batch_size) +
                     ". Change the batch size of the loader, or the global batch.");
  }
  options_.steps = options_.global_batch_size / at_once;
  options_.global_batch_size = 0;
}

void Gradients::add_loader(DataLoader::Position loader, std::int64_t batch_size) {
  derive_steps(batch_size);
  loaders_.push_back(std::move(loader));
}

void Gradients::clear() {
  models_.clear();
  if (scaling_) scaling_->clear();
  loaders_.clear();
  done_ = 0;
}

std::vector<DistributedDataParallelBase*> Gradients::models() const {
  std::vector<DistributedDataParallelBase*> all;
  for (const auto& model : models_) all.push_back(model.get());
  return all;
}

/// That of the pass that began last.
std::optional<DataLoaderProgress> Gradients::progress() const {
  std::optional<DataLoaderProgress> latest;
  for (const auto& loader : loaders_) {
    const auto progress = loader.progress();
    if (progress && (!latest || progress->pass > latest->pass)) latest = progress;
  }
  return latest;
}

void Gradients::begin_step() { begin(progress()); }

void Gradients::begin(const std::optional<DataLoaderProgress>& progress) {
  const bool follows = options_.sync_with_dataloader && progress.has_value();
  // A pass that was left in the middle of a window takes the window with it.
  if (follows && progress->pass != pass_) done_ = 0;
  if (done_ == 0) {
    length_ = options_.steps;
    if (follows) length_ = std::min(length_, progress->size - progress->position + 1);
    weighted_.reset();
    weight_ = 0;
  }
  if (follows) pass_ = progress->pass;
  ++done_;
  inside_ = true;
  syncs_ = done_ >= length_ || (follows && progress->position >= progress->size);
}

void Gradients::end() noexcept {
  if (syncs_) done_ = 0;
  // What is outside of windows is a step of its own.
  inside_ = false;
  syncs_ = true;
}

/// A mean of means and a weighted sum cannot be added.
void Gradients::demand_kind(bool weighted) {
  if (!inside_) return;
  if (weighted_.value_or(weighted) != weighted) {
    throw UsageError(
        "backward(loss) and backward(sum, weight) cannot be mixed in one accumulation window: the one is a "
        "mean, the other a sum.");
  }
  weighted_ = weighted;
  if (syncs_) weighted_.reset();
}

at::Tensor Gradients::scaled(const at::Tensor& loss) { return scaling_ ? scaling_->scale(loss) : loss; }

void Gradients::backward(const at::Tensor& loss) {
  demand_kind(false);
  scaled(inside_ && length_ > 1 ? loss / length_ : loss).backward();
}

void Gradients::backward(const at::Tensor& sum, double weight) {
  if (!(weight >= 0))
    throw UsageError("backward: the weight must be 0 or more, not " + std::to_string(weight));
  demand_kind(true);
  if (inside_) weight = weight_ += weight;
  if (!syncs_) return scaled(sum).backward();
  if (!options_.weights_of_all_ranks) return backward_by_own(sum, weight);
  at::Tensor total = at::full({1}, weight, at::TensorOptions(group_.object_device()).dtype(at::kDouble));
  // On its way while backward computes.
  Work exchange = group_.all_reduce_async(total);
  scaled(sum).backward();
  exchange.wait();
  // DistributedDataParallel has divided the sum over the ranks by their number.
  const double all = total.item<double>();
  const auto gradients = gradients_of(models_);
  if (!gradients.empty()) at::_foreach_mul_(gradients, all > 0 ? group_.size() / all : 0.0);
}

/// DistributedDataParallel takes the mean of the ranks' means: so what is there must be divided before it
/// does.
void Gradients::backward_by_own(const at::Tensor& sum, double weight) {
  const double factor = weight > 0 ? 1.0 / weight : 0.0;
  const auto gradients = gradients_of(models_);
  if (!gradients.empty()) at::_foreach_mul_(gradients, factor);
  scaled(sum * factor).backward();
}

void Gradients::unscale_all() {
  if (scaling_ && syncs_) scaling_->unscale_all();
}

void Gradients::unscale(const std::vector<at::Tensor>& parameters) {
  if (scaling_ && syncs_) scaling_->unscale(parameters);
}

bool Gradients::step(torch::optim::Optimizer& optimizer) {
  if (scaling_) return scaling_->step(optimizer);
  optimizer.step();
  return true;
}

bool has_stepped(const Gradients& gradients, const torch::optim::Optimizer& optimizer) {
  return gradients.syncs() && !gradients.skipped(optimizer);
}

}  // namespace train

struct AccumulationStep::Silence {
  std::list<DistributedDataParallelBase::NoSync> guards;
};

AccumulationStep::AccumulationStep(std::shared_ptr<train::Gradients> gradients,
                                   const std::vector<DistributedDataParallelBase*>& models)
    : gradients_(std::move(gradients)) {
  if (gradients_->syncs() || gradients_->sends_each_batch()) return;
  silence_ = std::make_unique<Silence>();
  for (auto* model : models) silence_->guards.emplace_back(*model);
}

AccumulationStep::~AccumulationStep() { gradients_->end(); }

void AcceleratedOptimizer::step() {
  if (gradients_ && !gradients_->syncs()) return;
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
