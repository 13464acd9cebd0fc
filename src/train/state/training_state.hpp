#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint_folder.hpp"
#include "lockstep/train/accelerator.hpp"
#include "train/state/checkpoint_part.hpp"
#include "train/state/checkpoint_writer.hpp"

namespace lockstep::train {

/// What a checkpoint contains: made of PreparedObjects for one call, because its parts only point to the
/// objects.
class TrainingState {
 public:
  using Parts = std::vector<std::unique_ptr<CheckpointPart>>;

  /// Each phase goes through the parts in this order.
  explicit TrainingState(Parts parts) : parts_(std::make_shared<Parts>(std::move(parts))) {}

  /// Writes everything as a checkpoint. Once. *Collective*: see Accelerator::save_state.
  void save(const Accelerator& accelerator, const std::filesystem::path& path, CheckpointInfo info,
            const SaveStateOptions& options, CheckpointWriter& writer) const;

  /// Loads what rank 0 reads at the checkpoint's path. Once. *Collective*: see Accelerator::load_state.
  void load(const Accelerator& accelerator, const Checkpoint& checkpoint) const;

  /// Gives all ranks the state of rank `source`, from memory to memory; the source's own stays as it is, and
  /// random states are not given. Once. *Collective*. Throws UsageError, before anything is sent, for a state
  /// of which each rank holds a part.
  void give(const Accelerator& accelerator, int source) const;
  /// Why give() refuses; "" if it does not. The same on all ranks. *Local*.
  std::string why_not_given() const;

 private:
  /// Shared with the thread that writes.
  std::shared_ptr<Parts> parts_;
};

}  // namespace lockstep::train
