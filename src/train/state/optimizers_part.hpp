#pragma once

#include <utility>
#include <vector>

#include "lockstep/checkpoint/optimizer_state.hpp"
#include "train/state/checkpoint_part.hpp"
#include "train/state/models_part.hpp"

namespace lockstep::train {

/// The optimizers' states and options. Those of sharded models, and a ZeroRedundancyOptimizer's, are gathered
/// into one state as a single process has it.
class OptimizersPart : public CheckpointPart {
 public:
  /// `models` must outlive this object.
  OptimizersPart(const ModelsPart& models, std::vector<torch::optim::Optimizer*> optimizers)
      : models_(models), optimizers_(std::move(optimizers)) {}

  void gather(const GatherOptions& options) override;
  void take_local() override;
  void detach(HostCopies& host) override;
  void write(CheckpointFiles& files) const override;
  void read(const Checkpoint& checkpoint) override;
  void apply(const Accelerator& accelerator, const CheckpointInfo& info) override;
  std::string why_not_given() const override;

 private:
  const ModelsPart& models_;
  std::vector<torch::optim::Optimizer*> optimizers_;
  /// Of tensors in the queue, or in `sources_`, there are only forms here.
  std::vector<OptimizerState> states_;
  /// The files of optimizers of sharded models, which are read while their tensors are distributed.
  std::vector<TensorSource> sources_;
};

}  // namespace lockstep::train
