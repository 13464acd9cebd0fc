#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep {

class DistributedDataParallelBase;

namespace train {
/// The library's own: what accumulation, scaling and stepping share.
class Gradients;
}  // namespace train

/// Several micro-batches for one optimizer step. Names and meaning as in Accelerate's
/// GradientAccumulationPlugin, but where noted.
struct GradientAccumulationOptions {
  /// Micro-batches of one rank for one optimizer step.
  std::int64_t steps = 1;

  /// Samples of all ranks for one optimizer step; then `steps` follows from the batch size of the first
  /// loader that is prepared and the number of ranks, so that a job computes the same on another number of
  /// ranks. UsageError where it does not divide. 0: `steps` counts.
  std::int64_t global_batch_size = 0;

  /// The last batch of a loader ends the window, which may be shorter then; its losses are divided by its
  /// true length (Accelerate divides by `steps` and so gives the last step too small a gradient).
  bool sync_with_dataloader = true;

  /// A weighted sum is divided by the weights of all ranks. Off: by the rank's own, and the ranks are
  /// averaged, so that a rank with few tokens counts as much as one with many.
  bool weights_of_all_ranks = true;

  /// Average the gradients of every micro-batch: slower, as it sends `steps` times as much.
  bool sync_each_batch = false;
};

/// One micro-batch, from Accelerator::accumulate(). While it lives, `sync_gradients()` tells whether this
/// micro-batch ends its window; in the others nothing is sent, and prepared optimizers and schedulers do
/// nothing. It must not outlive the Accelerator and the models. *Local*, but every rank does the same.
class [[nodiscard]] AccumulationStep {
 public:
  /// For Accelerator::accumulate. Keeps the models silent (see DistributedDataParallel::no_sync) unless the
  /// window ends here.
  AccumulationStep(std::shared_ptr<train::Gradients> gradients,
                   const std::vector<DistributedDataParallelBase*>& models);
  /// The micro-batch is over. What is outside of windows counts as a step of its own.
  ~AccumulationStep();
  AccumulationStep(const AccumulationStep&) = delete;
  AccumulationStep& operator=(const AccumulationStep&) = delete;

 private:
  struct Silence;
  std::shared_ptr<train::Gradients> gradients_;
  std::unique_ptr<Silence> silence_;
};

}  // namespace lockstep
