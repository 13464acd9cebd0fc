#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/train/checkpointing.hpp"
#include "train/state/checkpoint_part.hpp"

namespace lockstep::train {

/// The program's own objects: see Accelerator::register_for_checkpointing.
class ObjectsPart : public CheckpointPart {
 public:
  using Objects = std::vector<std::pair<std::string, Checkpointable*>>;

  explicit ObjectsPart(Objects objects) : objects_(std::move(objects)) {}

  void gather(const GatherOptions& options) override;
  void detach(HostCopies& host) override;
  void write(CheckpointFiles& files) const override;
  void read(const Checkpoint& checkpoint) override;
  void apply(const Accelerator& accelerator, const CheckpointInfo& info) override;

 private:
  Objects objects_;
  std::vector<SafeTensors> states_;
};

}  // namespace lockstep::train
