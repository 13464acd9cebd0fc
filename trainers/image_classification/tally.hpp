#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/train/accelerator.hpp"

/// Sums over samples, for exact means over any number of ranks. They stay on the device until they are read.
/// A checkpoint has each rank's sums of the current epoch.
class Tally final : public lockstep::Checkpointable {
 public:
  explicit Tally(const lockstep::Accelerator& accelerator);

  void add(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& mean_loss);
  void clear();

  /// The sums over all ranks. *Collective*.
  Tally of_all_ranks() const;

  double loss() const;
  double accuracy() const;

  lockstep::SafeTensors state_dict() const override;
  void load_state_dict(const lockstep::SafeTensors& state) override;

 private:
  lockstep::Accelerator accelerator_;
  at::Tensor sums_;
};
