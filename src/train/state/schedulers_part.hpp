#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/optim/lr_scheduler.hpp"
#include "train/state/checkpoint_part.hpp"

namespace lockstep::train {

/// The schedulers of learning rates. Behind OptimizersPart in the list: a scheduler that is loaded sets its
/// optimizer's rates.
class SchedulersPart : public CheckpointPart {
 public:
  explicit SchedulersPart(std::vector<optim::Scheduler*> schedulers) : schedulers_(std::move(schedulers)) {}

  void take_local() override;
  void write(CheckpointFiles& files) const override;
  void read(const Checkpoint& checkpoint) override;
  void apply(const Accelerator& accelerator, const CheckpointInfo& info) override;

 private:
  std::vector<optim::Scheduler*> schedulers_;
  std::vector<std::string> states_;
};

}  // namespace lockstep::train
