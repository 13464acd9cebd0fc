#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>

#include "lockstep/data/batch.hpp"

namespace lockstep {

/// A batch whose copy to a device may still be in progress.
class PrefetchedBatch {
 public:
  PrefetchedBatch() = default;
  /// A batch without a pending copy.
  explicit PrefetchedBatch(Batch batch) : batch_(std::move(batch)) {}

  /// Returns the batch; later work on the calling thread's current stream runs after the copy.
  Batch receive() &&;

 private:
  friend class DeviceCopy;
  struct Copied;

  Batch batch_;
  std::shared_ptr<Copied> copied_;
};

/// Copies a loader's batches to its device. Thread-safe.
///
/// Uses c10's device-independent streams and events, which work once the CUDA library is loaded: nothing here
/// links CUDA.
class DeviceCopy {
 public:
  /// `pin` and `beside` are DataLoaderOptions::pin_memory and ::non_blocking. Loads the CUDA library if one
  /// of them, or the device, needs it.
  DeviceCopy(at::Device device, bool pin, bool beside);

  /// Pins the batch and starts a non_blocking copy if configured; otherwise finish() copies.
  PrefetchedBatch send(Batch batch) const;

  /// Completes the copy and returns the batch.
  Batch finish(PrefetchedBatch arriving) const;

 private:
  struct CopyStream;

  at::Device device_;
  /// The CUDA device that is current while batches are pinned and copied.
  std::optional<at::Device> context_ = {};
  bool pin_ = false;
  std::shared_ptr<const CopyStream> copy_stream_;
};

}  // namespace lockstep
