#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/train/accelerator.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep::train {

/// The mean loss over steps and ranks, for the log. The loss of a step is that whose gradient was taken: the
/// sum of all ranks' losses by the sum of their weights, or the mean of the ranks' own means. Values stay on
/// the device until fold().
class LossMeter {
 public:
  /// As GradientAccumulationOptions::weights_of_all_ranks.
  LossMeter(Accelerator accelerator, bool weights_of_all_ranks)
      : accelerator_(std::move(accelerator)), weights_of_all_ranks_(weights_of_all_ranks) {}

  /// A micro-batch, and the end of its step.
  void add(const Loss& loss);
  void end_step();
  /// So many steps wait that fold() should be called: the same on every rank. *Local*.
  bool is_full() const noexcept;

  /// What fold() found.
  struct Fold {
    /// Over steps whose loss is finite, and how many these are.
    double sum = 0;
    std::int64_t finite_steps = 0;
    /// Over all.
    double whole_sum = 0;
    std::int64_t steps = 0;
  };
  /// Exchanges and forgets the steps that ended since the last time. *Collective*.
  Fold fold();

 private:
  Accelerator accelerator_;
  bool weights_of_all_ranks_;
  at::Tensor sum_;
  std::int64_t micro_batches_ = 0;
  double weight_ = 0;
  bool weighted_ = false;
  std::vector<at::Tensor> sums_;
  std::vector<double> weights_;
};

}  // namespace lockstep::train
