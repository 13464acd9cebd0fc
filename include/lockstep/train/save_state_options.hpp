#pragma once

#include <functional>

namespace lockstep {

/// How Accelerator::save_state writes.
struct SaveStateOptions {
  /// Copy everything in memory and write in a thread, while training goes on: the loop waits for the copy
  /// only. Takes the memory of one more model and optimizer on rank 0. Two writes never overlap: the next
  /// save_state() waits for this one, and throws what it threw.
  bool asynchronous = false;

  /// Called on rank 0 when the checkpoint is in place, in the thread that has written it.
  std::function<void()> when_written = {};
};

}  // namespace lockstep
