#pragma once

#include <filesystem>
#include <functional>

namespace lockstep {

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

}  // namespace lockstep
