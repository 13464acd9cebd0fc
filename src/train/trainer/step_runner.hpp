#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/train/trainer.hpp"
#include "train/accumulation_window.hpp"
#include "train/graphs/host_bound_watch.hpp"
#include "train/graphs/kept_gradients.hpp"
#include "train/graphs/step_graphs.hpp"
#include "train/trainer/folded_clipping.hpp"
#include "train/training_scope.hpp"

namespace lockstep::train {

/// Runs what a training does between two logs: forward and backward of micro-batches, clipping, the
/// optimizer's step. As usual, or recorded as CUDA graphs: see TrainingArguments::cuda_graphs and StepGraphs.
///
/// There are two kinds of graphs, a micro-batch's and the optimizer's, so that callbacks run between them as
/// usual, with the loss and the gradients in their tensors. The last micro-batch of a window also clips. What
/// distinguishes recordings of a micro-batch is its place in its window, besides the shapes: a loss is
/// divided by the window's length, and only the last one communicates.
class StepRunner {
 public:
  /// Of a training whose models and optimizer are prepared; they must outlive it. `records`: unless something
  /// in the training or its steps prevents it.
  StepRunner(Trainer& trainer, TrainingScope& scope, AcceleratedOptimizer& optimizer, bool records);

  /// Inside Accelerator::accumulate. The tensors of the result are not overwritten later.
  Loss micro_batch(const Batch& batch);
  /// At the end of a window: clips the gradients, or leaves that to step(); returns their norm before.
  at::Tensor clip();
  void step();
  /// After a step, and where a window ends without one.
  void clear();
  void discard();

 private:
  using Tensors = std::vector<at::Tensor>;

  bool is_recording_on() const { return graphs_ && graphs_->is_on(); }
  void begin_recording();
  void begin_window();
  /// Whether the host's part of this micro-batch is as in others of its kind.
  bool is_ordinary(const Batch& batch);
  Loss usual_micro_batch(const Batch& batch);
  Tensors compute(const Batch& batch);
  at::Tensor clip_gradients();
  void step_optimizer();
  void remember_changes(const std::string& part);
  void usual_step();
  std::vector<Tensors> changes_of_micro_batch();
  std::vector<Tensors> state_of_optimizer();
  std::function<void()> host_state();

  Trainer& trainer_;
  TrainingScope& scope_;
  AccumulationWindow& window_;
  AcceleratedOptimizer& optimizer_;
  std::optional<StepGraphs> graphs_;
  /// Where nothing sees the gradients between clip() and clear(): step() clips them.
  std::optional<FoldedClipping> folded_;
  /// For windows of several micro-batches.
  std::optional<KeptGradients> kept_;
  /// The gradients that a recorded micro-batch changes.
  std::map<std::string, std::vector<bool>> changes_;
  /// Those that the current one has changed.
  std::vector<bool> found_;
  bool records_step_ = false;
  /// Losses are scaled (fp16), so that gradients are unscaled before they are clipped, as usual.
  bool scales_ = false;
  /// On a device, where steps are not recorded.
  std::optional<HostBoundWatch> watch_;
  /// The gradients of this window are where those of other windows are: a recording may refer to them.
  bool gradients_stay_ = false;
  /// Of the model and what else recordings refer to.
  std::string memory_;
  /// Already measured by the last micro-batch.
  at::Tensor norm_;
};

/// Why the steps of a training cannot be recorded, as far as its arguments and options tell; "" if they can.
std::string graph_obstacle(const Trainer& trainer);

/// Whether a training records its steps. Says so if it cannot on a device where others do. Throws UsageError
/// if it cannot and must.
bool records_steps(const Trainer& trainer);

}  // namespace lockstep::train
