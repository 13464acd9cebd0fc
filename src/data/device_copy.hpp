#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>

#include "lockstep/data/batch.hpp"

namespace lockstep {

/// A batch that may still be on its way to a device.
class PrefetchedBatch {
 public:
  PrefetchedBatch() = default;
  /// One that is there.
  explicit PrefetchedBatch(Batch batch) : batch_(std::move(batch)) {}

  /// The batch, for the caller's thread: what its current stream does from now on comes after the copy.
  Batch receive() &&;

 private:
  friend class DeviceCopy;
  struct Copied;

  Batch batch_;
  std::shared_ptr<Copied> copied_;
};

/// How a loader's batches get to its device. Safe from several threads.
///
/// Streams and events are c10's device-independent ones, which the CUDA library fills with life once it is
/// loaded: nothing here links CUDA.
class DeviceCopy {
 public:
  /// `pin` and `beside`: as DataLoaderOptions::pin_memory and ::non_blocking. Loads the CUDA library where
  /// one of them, or the device, needs it.
  DeviceCopy(at::Device device, bool pin, bool beside);

  /// Begins the copy, or does all of it, where it runs beside the host; otherwise finish() copies.
  PrefetchedBatch send(Batch batch) const;

  /// What is handed out.
  Batch finish(PrefetchedBatch arriving) const;

 private:
  struct CopyStream;

  at::Device device_;
  /// The CUDA device that is current while batches are pinned and sent.
  std::optional<at::Device> context_ = {};
  bool pin_ = false;
  std::shared_ptr<const CopyStream> copy_stream_;
};

}  // namespace lockstep
