#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "comm/group_observer.hpp"
#include "lockstep/comm/process_group.hpp"
#include "lockstep/data/data_loader.hpp"
#include "lockstep/train/gradient_accumulation.hpp"
#include "train/loss_scaling.hpp"
#include "train/window_passes.hpp"

namespace lockstep::train {

/// The state of a job between two optimizer steps: the window of micro-batches, the weights of its losses,
/// and the loss scale of float16.
class AccumulationWindow final : public comm::GroupObserver {
 public:
  /// Throws UsageError for options out of range, and for fp16 on a CPU.
  AccumulationWindow(const ProcessGroup& group, const AcceleratorOptions& options);

  /// `owner` keeps the model's wrapper alive.
  void add_model(WrappedModel model, std::shared_ptr<void> owner) {
    models_.push_back(model);
    owners_.push_back(std::move(owner));
  }
  /// `alive` expires when the optimizer may no longer be used.
  void add_optimizer(torch::optim::Optimizer& optimizer, std::weak_ptr<const void> alive) {
    if (scaling_) scaling_->add_optimizer(optimizer, alive);
    optimizers_.emplace_back(&optimizer, std::move(alive));
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

  /// Drops the window in progress and the gradients of all models.
  void discard();
  /// What is left of a failed step must not become part of the next one.
  void release() override { discard(); }
  void reseat() override {}
  /// How often optimizers have stepped.
  std::uint64_t optimizer_steps() const noexcept { return optimizer_steps_; }

  /// Begins and ends a micro-batch.
  void begin_step();
  void end() noexcept;
  /// After the end, still that of the last micro-batch, until a backward outside of one.
  bool syncs() const noexcept { return syncs_; }
  /// The number of the micro-batch, from 1, and how many the window has, as far as it is known.
  std::int64_t number() const noexcept { return done_; }
  std::int64_t length() const noexcept { return length_; }

  /// What the host knows of the micro-batches so far.
  struct Memory {
    std::optional<bool> weighted;
    int weighted_losses = 0;
    at::Tensor weight, divided_by;
  };
  Memory memory() const { return {weighted_, weighted_losses_, weight_, divided_by_}; }
  void set_memory(Memory memory);
  /// The weight of the window stays at one place on the device, where a recorded micro-batch finds it.
  void keep_weight_in_place() noexcept { keeps_place_ = true; }
  /// Undefined before the first weight.
  const at::Tensor& place_of_weight() const noexcept { return place_of_weight_; }
  /// A micro-batch was computed without a call of backward(), by a replay.
  void was_replayed(bool weighted);
  /// The same of an optimizer's step.
  void was_stepped(const torch::optim::Optimizer& optimizer) { stepped_.insert(&optimizer); }
  /// Those that have stepped in the micro-batch.
  const std::set<const torch::optim::Optimizer*>& stepped() const noexcept { return stepped_; }
  /// From now on prepared optimizers fill gradients with zeros instead of dropping them.
  void keep_gradients() noexcept { keeps_gradients_ = true; }
  bool keeps_gradients() const noexcept { return keeps_gradients_; }
  bool sends_each_batch() const noexcept { return options_.sync_each_batch; }

  /// Computes gradients; with a weight, they become those of the weighted mean at the end of the window.
  void backward(const at::Tensor& loss);
  void backward(const at::Tensor& sum, const at::Tensor& weight);

  void unscale_all();
  /// Same, for the optimizers of these parameters.
  void unscale(const std::vector<at::Tensor>& parameters);
  /// True if the optimizer stepped, false if the step was skipped. Gradients are multiplied by `factor`, one
  /// element of the device, if it is defined; `.grad` need not be.
  optim::StepOutcome step(torch::optim::Optimizer& optimizer, const at::Tensor& factor = {});
  /// Whether the optimizer's zero_grad() clears: the gradients are those of an earlier window, or this window
  /// has ended. A program may call it at the top of its loop, also for one of several models.
  bool may_clear(const torch::optim::Optimizer& optimizer) const;
  /// Whether any optimizer, or this one, skipped its last step. With fp16, waits until its device knows.
  bool skipped() const { return scaling_ && scaling_->any_skipped(); }
  bool skipped(const torch::optim::Optimizer& optimizer) const {
    return scaling_ && scaling_->skipped(optimizer);
  }
  /// Null without fp16.
  LossScaling* scaling() noexcept { return scaling_ ? &*scaling_ : nullptr; }

 private:
  void derive_steps(std::int64_t batch_size);
  void look_ahead() const;
  void abandon();
  void demand_kind(bool weighted);
  /// Adds the weight to those of the window; the sum so far.
  at::Tensor weight_so_far(const at::Tensor& weight);
  void backward_divided(const at::Tensor& sum, const at::Tensor& weight);
  void backward_of_sharded(const at::Tensor& sum, const at::Tensor& weight);
  at::Tensor scaled(const at::Tensor& loss);

  ProcessGroup group_;
  std::vector<WrappedModel> models_;
  std::vector<std::shared_ptr<void>> owners_;
  std::vector<std::pair<const torch::optim::Optimizer*, std::weak_ptr<const void>>> optimizers_;
  /// What their gradients were at the beginning of the micro-batch: see gradients_mark().
  std::map<const torch::optim::Optimizer*, std::uint64_t> at_begin_;
  /// Those that have stepped in the micro-batch.
  std::set<const torch::optim::Optimizer*> stepped_;
  std::vector<DataLoader::Position> loaders_;
  WindowPasses passes_;
  GradientAccumulationOptions options_;
  bool sharded_ = false;
  std::int64_t steps_ = 1;
  std::optional<LossScaling> scaling_;
  std::int64_t length_ = 1;
  std::int64_t done_ = 0;
  std::uint64_t optimizer_steps_ = 0;
  bool inside_ = false;
  bool syncs_ = true;
  std::optional<bool> weighted_;
  /// Weighted losses of the micro-batch.
  int weighted_losses_ = 0;
  /// Weight of the window so far: one element on a device; undefined before the first.
  at::Tensor weight_;
  bool keeps_place_ = false, keeps_gradients_ = false;
  at::Tensor place_of_weight_;
  /// The weight by which the window's gradients are divided already; undefined if they are sums.
  at::Tensor divided_by_;
};

}  // namespace lockstep::train
