#pragma once

#include <vector>

#include "train/state/checkpoint_part.hpp"
#include "train/state/random_state.hpp"

namespace lockstep::train {

/// The random generators of every rank. Last in the list: what the other parts draw while they are loaded
/// does not count. Another number of ranks than the saved one gets new states.
class RandomStatesPart : public CheckpointPart {
 public:
  void gather(const GatherOptions& options) override;
  void write(CheckpointFiles& files) const override;
  void read(const Checkpoint& checkpoint) override;
  void apply(const Accelerator& accelerator, const CheckpointInfo& info) override;

 private:
  std::vector<RandomState> states_;
};

}  // namespace lockstep::train
