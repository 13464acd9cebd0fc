#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "lockstep/train/accelerator.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep::train {

/// The mean loss over steps and ranks, for the log. A step's loss is the one whose gradient was computed: the
/// sum of all ranks' losses divided by the sum of their weights, or the mean of the ranks' means. Values stay
/// on the device until fold().
class LossMeter {
 public:
  /// See GradientAccumulationOptions::weights_of_all_ranks.
  LossMeter(Accelerator accelerator, bool weights_of_all_ranks)
      : accelerator_(std::move(accelerator)), weights_of_all_ranks_(weights_of_all_ranks) {}

  /// Adds a micro-batch; ends its step; drops the micro-batches of a step that is not made.
  void add(const Loss& loss);
  void end_step();
  void discard_step();
  /// Whether so many steps are pending that fold() should be called; the same on every rank. *Local*.
  bool is_full() const noexcept;

  /// Adds up the last step's loss and these counts of all ranks, and returns the counts. What is shared is
  /// not lost with a rank, and fold() sends nothing more for it. *Collective*.
  std::vector<double> share_step(const std::vector<double>& counts);
  /// Those that fold() has not returned yet. *Local*.
  const std::vector<double>& shared_losses() const noexcept { return shared_; }
  void set_shared_losses(std::vector<double> losses);

  /// The losses of the steps since the last call, over all ranks; discards them. *Collective*.
  std::vector<double> fold();

 private:
  Accelerator accelerator_;
  bool weights_of_all_ranks_;
  at::Tensor sum_;
  std::int64_t micro_batches_ = 0;
  at::Tensor weight_;
  bool weighted_ = false;
  std::vector<at::Tensor> sums_;
  std::vector<at::Tensor> weights_;
  std::vector<double> shared_;
};

}  // namespace lockstep::train
