#pragma once

#include <string>

#include "train/loss_scaling.hpp"
#include "train/state/checkpoint_part.hpp"

namespace lockstep::train {

/// The loss scale of float16, for all prepared models. A checkpoint that was written without one leaves the
/// program's scale as it is.
class ScalerPart : public CheckpointPart {
 public:
  /// Null if there is none.
  explicit ScalerPart(LossScaling* scaling) : scaling_(scaling) {}

  void take_local() override;
  void write(CheckpointFiles& files) const override;
  void read(const Checkpoint& checkpoint) override;
  void apply(const Accelerator& accelerator, const CheckpointInfo& info) override;

 private:
  LossScaling* scaling_;
  std::string state_;
};

}  // namespace lockstep::train
