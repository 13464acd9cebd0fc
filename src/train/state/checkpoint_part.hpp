#pragma once

#include <optional>
#include <string>

#include "checkpoint/checkpoint_folder.hpp"
#include "lockstep/train/accelerator.hpp"
#include "train/state/checkpoint_files.hpp"
#include "train/state/host_copies.hpp"
#include "train/state/sharded_state.hpp"

namespace lockstep::train {

/// One kind of state in a checkpoint: the models, the optimizers, the loaders' positions. It points to the
/// program's objects of its kind, and holds their content between two phases.
///
///     save   gather -> take_local (the ranks that write) -> detach (if asynchronous) -> write
///     load   prepare_reading -> read (rank 0) -> apply
///     give   give_from -> gather -> take_local (the rank that gives) -> apply
///
/// TrainingState runs each phase for all parts, in the order of its list, before the next one begins. A new
/// kind is a new part in that list (PreparedObjects::state).
class CheckpointPart {
 public:
  struct GatherOptions {
    const ProcessGroup& group;
    /// Where a part puts tensors that are gathered while files are written, in the order of its files.
    GatheredTensors& queue;
    /// Gather into memory now, and leave the queue empty: training goes on while files are written.
    bool at_once;
    /// Whether this rank needs the tensors. With at_once, the others drop them.
    bool writes;
    /// See SaveStateOptions.
    std::optional<bool> trained_only;
  };

  CheckpointPart() = default;
  virtual ~CheckpointPart() = default;
  CheckpointPart(const CheckpointPart&) = delete;
  CheckpointPart& operator=(const CheckpointPart&) = delete;

  /// Takes what only all ranks together have. *Collective*.
  virtual void gather(const GatherOptions&) {}
  /// Takes what the writing rank has itself: handles, no copies. *Local*.
  virtual void take_local() {}
  /// Lets go of the program's objects, and replaces tensors that training changes with copies, which have
  /// their values after HostCopies::wait(). *Local*.
  virtual void detach(HostCopies&) {}
  /// Adds its files. Uses the content alone: with asynchronous checkpoints, it runs beside the training.
  /// *Local*.
  virtual void write(CheckpointFiles& files) const = 0;
  /// What the manifest says of it. *Local*.
  virtual void describe(CheckpointInfo&) const {}

  /// Finds out of the program's objects what read() compares and only all ranks together have. *Collective*:
  /// `checkpoint` is the same on every rank, but only rank 0 sees the files.
  virtual void prepare_reading(const Accelerator&, const Checkpoint&) {}
  /// Reads its files and compares them with the objects, which stay as they are. *Local*. Throws DataError.
  virtual void read(const Checkpoint& checkpoint) = 0;
  /// Gives all ranks what rank 0 has read, or what the rank of give_from() has taken. *Collective*. `info` is
  /// the checkpoint's, on every rank.
  virtual void apply(const Accelerator& accelerator, const CheckpointInfo& info) = 0;

  /// apply() will give what rank `root` takes, from memory to memory. *Local*.
  void give_from(int root) noexcept { root_ = root, is_given_ = true; }
  /// Why one rank cannot give this state to the others, "" if it can. The same on all ranks. *Local*.
  virtual std::string why_not_given() const { return ""; }

 protected:
  /// The rank whose content apply() gives to all.
  int root() const noexcept { return root_; }
  bool is_given() const noexcept { return is_given_; }
  /// Whether this rank keeps what it has, because the others get it.
  bool is_giver(const ProcessGroup& group) const { return is_given_ && group.rank() == root_; }

 private:
  int root_ = 0;
  bool is_given_ = false;
};

}  // namespace lockstep::train
