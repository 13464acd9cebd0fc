#pragma once

#include <filesystem>
#include <functional>
#include <list>
#include <memory>
#include <optional>

#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/core/lifetime.hpp"

namespace lockstep {

/// An object of the program to be saved in checkpoints: a scheduler, sums over an epoch, an averaged model.
/// See Accelerator::register_for_checkpointing.
class Checkpointable {
 public:
  virtual ~Checkpointable() = default;

  /// The state needed to resume, as tensors and texts by name. Called on every rank while a checkpoint is
  /// written; rank 0's result is saved. An object that differs between ranks may therefore gather its parts
  /// here.
  virtual SafeTensors state_dict() const = 0;

  /// Restores what state_dict() returned. Called on every rank with the same content; the tensors are on the
  /// CPU. May throw DataError if the state does not fit.
  virtual void load_state_dict(const SafeTensors& state) = 0;

  /// For those that point to it.
  const Lifetime& lifetime() const noexcept { return lifetime_; }

 private:
  Lifetime lifetime_;
};

/// Options of Accelerator::save_state.
struct SaveStateOptions {
  /// Copy everything in memory, and write it in a thread while training continues: the loop only waits for
  /// the copy. Rank 0 needs memory for a second copy of model and optimizer. Two writes never overlap: the
  /// next save_state() waits for this one, and throws its exception.
  bool asynchronous = false;

  /// Every node that does not see rank 0's files keeps its own checkpoint, written by its first rank: for
  /// folders on local disks, where a restart may move rank 0 to another node. A probe file finds these nodes
  /// each time. Registered objects are saved as that rank has them.
  bool save_on_each_node = false;

  /// Of models, write only what is trained and the buffers. Frozen parameters that are as the program gave
  /// them to prepare() are left out: the manifest has their number and digest, and load_state() refuses
  /// another program's. By default so for a model with an adapter (models::add_lora), whose files are then
  /// PEFT's: adapter_model.safetensors and adapter_config.json. The digest is computed at the first
  /// checkpoint, by all ranks together, each of its part, without gathering.
  std::optional<bool> trained_only = std::nullopt;

  /// Called on each rank that writes, in the thread that writes, with the folder before it becomes a
  /// checkpoint. Files that it adds belong to the checkpoint, with checksums. Names of Lockstep's own files
  /// are reserved.
  std::function<void(const std::filesystem::path& folder)> add_files = {};

  /// Called on each rank that writes, in the thread that wrote, when the checkpoint is complete.
  std::function<void()> when_written = {};
};

/// Called with the path of a checkpoint before it is written or read.
using StateHook = std::function<void(const std::filesystem::path& path)>;

/// Removes a hook. Destroying the handle leaves its hook in place. *Local*.
class StateHookHandle {
 public:
  using Hooks = std::list<StateHook>;

  /// Used by Accelerator: appends a hook.
  StateHookHandle(const std::shared_ptr<Hooks>& hooks, StateHook hook)
      : hooks_(hooks), place_(hooks->insert(hooks->end(), std::move(hook))) {}

  /// The hook is not called again. No effect on a second call, or after the Accelerator was destroyed. Not
  /// from inside a hook.
  void remove() {
    if (const auto hooks = hooks_.lock()) hooks->erase(place_);
    hooks_.reset();
  }

 private:
  std::weak_ptr<Hooks> hooks_;
  Hooks::iterator place_;
};

}  // namespace lockstep
