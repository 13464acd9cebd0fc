#pragma once

#include <vector>

#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "train/state/checkpoint_part.hpp"
#include "train/state/models_part.hpp"

namespace lockstep::train {

/// How DDP has divided the models' gradients into buckets. A resumed run that sums other buckets would round
/// some sums otherwise. Empty for a model without DDP.
class BucketsPart : public CheckpointPart {
 public:
  /// `models` must outlive this object.
  explicit BucketsPart(const ModelsPart& models) : models_(models) {}

  void gather(const GatherOptions& options) override;
  void write(CheckpointFiles& files) const override;
  void read(const Checkpoint& checkpoint) override;
  /// If other parameters are trained now, the model's own layout stays.
  void apply(const Accelerator& accelerator, const CheckpointInfo& info) override;

 private:
  const ModelsPart& models_;
  std::vector<BucketLayout> layouts_;
};

}  // namespace lockstep::train
