#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/core/lifetime.hpp"
#include "lockstep/optim/schedules.hpp"

namespace lockstep::optim {

/// Changes an optimizer's learning rates during training; checkpoints save its state. `Accelerator::prepare`
/// accepts it. One thread at a time; *Local*, the same on every rank. It keeps a pointer to the optimizer,
/// which must outlive it.
class Scheduler {
 public:
  virtual ~Scheduler() = default;
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// The current learning rate of each parameter group.
  std::vector<double> last_lr() const;

  /// The optimizer whose learning rates it changes.
  const torch::optim::Optimizer& optimizer() const noexcept { return *optimizer_; }

  /// Called after each optimizer step that was not skipped. Does nothing by default.
  virtual void step() {}
  /// Called after each evaluation, with a metric that is the same on every rank (in Trainer,
  /// metric_for_best_model). Does nothing by default.
  virtual void step(double /*metric*/) {}

  /// Saves and restores its whole state, as JSON. Throws DataError if a text does not fit.
  virtual std::string state_dict() const = 0;
  virtual void load_state_dict(const std::string& text) = 0;

  /// For those that point to it.
  const Lifetime& lifetime() const noexcept { return lifetime_; }

 protected:
  explicit Scheduler(torch::optim::Optimizer& optimizer) : optimizer_(&optimizer) {}
  void set_lr(std::size_t group, double rate);
  std::size_t groups() const;

 private:
  torch::optim::Optimizer* optimizer_;
  Lifetime lifetime_;
};

/// Learning rates that depend on the number of optimizer steps.
///
///     lockstep::optim::AdamW optimizer(model->parameters(), {.lr = 5e-5});
///     lockstep::optim::LrScheduler scheduler(
///         optimizer, {.name = "cosine", .num_warmup_steps = 100, .num_training_steps = 1000});
///     ...
///     optimizer.step();
///     scheduler.step();
///
/// The optimizer's learning rates at construction are the full ones, per group. The constructor sets the
/// rates of step 0, as in PyTorch.
class LrScheduler final : public Scheduler {
 public:
  /// Throws UsageError if an option is out of range.
  LrScheduler(torch::optim::Optimizer& optimizer, const ScheduleOptions& options);
  /// With a custom schedule.
  LrScheduler(torch::optim::Optimizer& optimizer, Schedule schedule);

  /// Call it once after each optimizer step. Throws UsageError if the optimizer got parameter groups after
  /// the construction.
  void step() override;

  /// Number of steps done.
  std::int64_t steps() const noexcept { return steps_; }

  std::string state_dict() const override;
  void load_state_dict(const std::string& text) override;

 private:
  void set_rates();

  Schedule schedule_;
  std::vector<double> full_rates_;
  std::int64_t steps_ = 0;
};

/// Lowers the learning rates when a metric stops improving: torch.optim.lr_scheduler.ReduceLROnPlateau. All
/// ranks must pass the same metric: reduce it first.
class ReduceLrOnPlateau final : public Scheduler {
 public:
  /// Throws UsageError if an option is out of range.
  explicit ReduceLrOnPlateau(torch::optim::Optimizer& optimizer, const PlateauOptions& options = {});

  /// Call it after each evaluation.
  void step(double metric) override;

  std::string state_dict() const override;
  void load_state_dict(const std::string& text) override;

 private:
  PlateauRule rule_;
};

}  // namespace lockstep::optim
