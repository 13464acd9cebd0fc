#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/comm/process_group.hpp"
#include "lockstep/data/data_loader.hpp"
#include "lockstep/train/gradient_accumulation.hpp"
#include "loss_scaling.hpp"

namespace lockstep::train {

/// The state of a job between two optimizer steps: the window of micro-batches, the weights of its losses,
/// and the loss scale of float16.
class GradientState {
 public:
  /// Throws UsageError for options out of range, and for fp16 on a CPU.
  GradientState(const ProcessGroup& group, const AcceleratorOptions& options);

  /// `owner` keeps the model's wrapper alive.
  void add_model(WrappedModel model, std::shared_ptr<void> owner) {
    models_.push_back(model);
    owners_.push_back(std::move(owner));
  }
  /// `alive` expires when the optimizer may no longer be used.
  void add_optimizer(torch::optim::Optimizer& optimizer, std::weak_ptr<const void> alive) {
    if (scaling_) scaling_->add_optimizer(optimizer, std::move(alive));
  }
  /// The first loader determines the number of steps that `global_batch_size` means. Throws UsageError if it
  /// is not a whole number.
  void add_loader(DataLoader::Position loader, std::int64_t batch_size);
  void clear();

  /// What was prepared by now, and the steps.
  struct Mark {
    std::size_t models, loaders, optimizers;
    std::int64_t steps, global_batch_size;
  };
  Mark mark() const noexcept;
  /// Forgets what was prepared since then, and accumulates as it did. A window in progress ends.
  void return_to(const Mark& mark);

  const std::vector<WrappedModel>& models() const noexcept { return models_; }

  std::int64_t steps() const noexcept { return steps_; }
  void set_steps(std::int64_t steps);
  /// The next loader determines the steps.
  void set_global_batch_size(std::int64_t samples) noexcept { options_.global_batch_size = samples; }

  /// Begins and ends a micro-batch.
  void begin_step();
  void end() noexcept;
  bool syncs() const noexcept { return syncs_; }
  bool sends_each_batch() const noexcept { return options_.sync_each_batch; }

  /// Computes gradients; with a weight, they become those of the weighted mean at the end of the window.
  void backward(const at::Tensor& loss);
  void backward(const at::Tensor& sum, const at::Tensor& weight);

  void unscale_all();
  /// Same, for the optimizers of these parameters.
  void unscale(const std::vector<at::Tensor>& parameters);
  /// True if the optimizer stepped, false if the step was skipped.
  bool step(torch::optim::Optimizer& optimizer);
  /// Whether any optimizer, or this one, skipped its last step.
  bool skipped() const noexcept { return scaling_ && scaling_->any_skipped(); }
  bool skipped(const torch::optim::Optimizer& optimizer) const {
    return scaling_ && scaling_->skipped(optimizer);
  }
  /// Null without fp16.
  LossScaling* scaling() noexcept { return scaling_ ? &*scaling_ : nullptr; }

 private:
  void derive_steps(std::int64_t batch_size);
  void look_ahead() const;
  std::optional<DataLoaderProgress> progress() const;
  void begin(const std::optional<DataLoaderProgress>& progress);
  void discard_window();
  void demand_kind(bool weighted);
  void backward_by_own(const at::Tensor& sum, const at::Tensor& weight);
  at::Tensor scaled(const at::Tensor& loss);

  ProcessGroup group_;
  std::vector<WrappedModel> models_;
  std::vector<std::shared_ptr<void>> owners_;
  std::vector<DataLoader::Position> loaders_;
  GradientAccumulationOptions options_;
  std::int64_t steps_ = 1;
  std::optional<LossScaling> scaling_;
  std::int64_t length_ = 1;
  std::int64_t done_ = 0;
  std::uint64_t pass_ = 0;
  bool inside_ = false;
  bool syncs_ = true;
  std::optional<bool> weighted_;
  /// Weight of the window so far: one element on a device; undefined before the first.
  at::Tensor weight_;
};

}  // namespace lockstep::train
