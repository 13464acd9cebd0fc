#pragma once

#include <filesystem>
#include <functional>
#include <list>
#include <memory>

#include "lockstep/checkpoint/safetensors.hpp"

namespace lockstep {

/// Something of the program's own that belongs into a checkpoint: a scheduler, sums of an epoch, an averaged
/// model. See Accelerator::register_for_checkpointing.
class Checkpointable {
 public:
  virtual ~Checkpointable() = default;

  /// What it needs to go on, as tensors and texts by name. Called on every rank while a checkpoint is
  /// written; what rank 0 returns is kept. An object that differs from rank to rank may therefore gather its
  /// parts here.
  virtual SafeTensors state_dict() const = 0;

  /// Takes back what state_dict() returned. Called on every rank, with the same content, its tensors on
  /// the CPU. May throw DataError for what does not fit.
  virtual void load_state_dict(const SafeTensors& state) = 0;
};

/// How Accelerator::save_state writes.
struct SaveStateOptions {
  /// Copy everything in memory and write in a thread, while training goes on: the loop waits for the copy
  /// only. Takes the memory of one more model and optimizer on rank 0. Two writes never overlap: the next
  /// save_state() waits for this one, and throws what it threw.
  bool asynchronous = false;

  /// Every node whose disk does not show rank 0's files keeps a checkpoint of its own, written by its first
  /// rank: for folders on local disks, where a restart may give rank 0 to another node. Which nodes these are
  /// is found out with a probe file each time. Registered objects are kept as that rank has them.
  bool save_on_each_node = false;

  /// Called on each rank that writes, with the folder before it becomes a checkpoint, in the thread that
  /// writes: what it puts there belongs to the checkpoint, checksums included. Names of the library's own
  /// files are taken.
  std::function<void(const std::filesystem::path& folder)> add_files = {};

  /// Called on each rank that writes, when the checkpoint is in place, in the thread that has written it.
  std::function<void()> when_written = {};
};

/// Called with the path of a checkpoint before it is written or read.
using StateHook = std::function<void(const std::filesystem::path& path)>;

/// Takes a hook away again; a handle that is thrown away leaves its hook in place. *Local*.
class StateHookHandle {
 public:
  using Hooks = std::list<StateHook>;

  /// For Accelerator: puts a hook behind the others.
  StateHookHandle(const std::shared_ptr<Hooks>& hooks, StateHook hook)
      : hooks_(hooks), place_(hooks->insert(hooks->end(), std::move(hook))) {}

  /// From now on the hook is not called any more. Again, or after the Accelerator's end: nothing. Not from
  /// inside a hook.
  void remove() {
    if (const auto hooks = hooks_.lock()) hooks->erase(place_);
    hooks_.reset();
  }

 private:
  std::weak_ptr<Hooks> hooks_;
  Hooks::iterator place_;
};

}  // namespace lockstep
