#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/optim/schedules.hpp"

namespace lockstep::optim {

/// What changes an optimizer's learning rates in the course of a training, and belongs into its checkpoints.
/// `Accelerator::prepare` takes it. One thread at a time; *Local*, the same on every rank. It keeps a pointer
/// to the optimizer, which must outlive it.
class Scheduler {
 public:
  virtual ~Scheduler() = default;
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// The learning rate of each parameter group, as it is now.
  std::vector<double> last_lr() const;

  /// The one whose rates it changes.
  const torch::optim::Optimizer& optimizer() const noexcept { return *optimizer_; }

  /// After each optimizer step that was made. By default it changes nothing.
  virtual void step() {}
  /// After each evaluation, with a metric that is the same on every rank (in Trainer metric_for_best_model).
  /// Likewise.
  virtual void step(double /*metric*/) {}

  /// All that it remembers, as JSON, and back. Throws DataError for a text that does not fit.
  virtual std::string state_dict() const = 0;
  virtual void load_state_dict(const std::string& text) = 0;

 protected:
  explicit Scheduler(torch::optim::Optimizer& optimizer) : optimizer_(&optimizer) {}
  void set_lr(std::size_t group, double rate);
  std::size_t groups() const;

 private:
  torch::optim::Optimizer* optimizer_;
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
/// The rates with which the optimizer comes are the full ones, of each group its own. Setting it up sets the
/// rates of step 0, as in PyTorch.
class LrScheduler final : public Scheduler {
 public:
  /// Throws UsageError for options out of range.
  LrScheduler(torch::optim::Optimizer& optimizer, const ScheduleOptions& options);
  /// A schedule of the program's own.
  LrScheduler(torch::optim::Optimizer& optimizer, Schedule schedule);

  /// To be called once after each optimizer step.
  void step() override;

  /// Steps done.
  std::int64_t steps() const noexcept { return steps_; }

  std::string state_dict() const override;
  void load_state_dict(const std::string& text) override;

 private:
  void set_rates();

  Schedule schedule_;
  std::vector<double> full_rates_;
  std::int64_t steps_ = 0;
};

/// Lowers the rates when a metric stops getting better: torch.optim.lr_scheduler.ReduceLROnPlateau. All ranks
/// must give it the same metric: reduce it first.
class ReduceLrOnPlateau final : public Scheduler {
 public:
  /// Throws UsageError for options out of range.
  explicit ReduceLrOnPlateau(torch::optim::Optimizer& optimizer, const PlateauOptions& options = {});

  /// To be called after each evaluation.
  void step(double metric) override;

  std::string state_dict() const override;
  void load_state_dict(const std::string& text) override;

 private:
  PlateauRule rule_;
};

}  // namespace lockstep::optim
