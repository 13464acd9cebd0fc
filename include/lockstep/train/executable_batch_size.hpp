#pragma once

#include <cstdint>
#include <functional>

#include "lockstep/train/accelerator.hpp"

namespace lockstep {

/// Calls `action` with `start`, and again with nine tenths of it (rounded down, as Accelerate does) while any
/// rank runs out of memory. Returns the size that succeeded. All ranks agree after every attempt, so that
/// they continue with the same size even if only one ran out of memory. Between two attempts the device's
/// allocator releases its cached memory.
///
///     const auto batch_size = lockstep::find_executable_batch_size(accelerator, 128, [&](std::int64_t size)
///     {
///       train_with(size);
///     });
///
/// An `action` that communicates, for example in a prepared model's backward, takes the Accelerator of the
/// attempt and uses it for all that it prepares and exchanges:
///
///     lockstep::find_executable_batch_size(accelerator, 128, [&](lockstep::Accelerator& attempt,
///                                                                std::int64_t size) {
///       train_with(attempt, size);
///     });
///
/// That Accelerator has its own group, with the same ranks and options. A rank that runs out of memory leaves
/// the group; the collectives of the other ranks then end with a CommunicationError, which counts as part of
/// the same attempt. (On CPUs. NCCL's watchdog ends a process whose collective fails: on GPUs, try a forward
/// and a backward of the unwrapped model first.) An `action` that takes only the size must not wait for other
/// ranks. `action` must not keep tensors of a failed attempt.
///
/// Out of memory are std::bad_alloc, LibTorch's OutOfMemoryError, and its error that an allocator cannot
/// allocate. Any other exception ends the search, on every rank. *Collective*. Throws UsageError if `start`
/// is below 1, and Error if not even one sample fits.
std::int64_t find_executable_batch_size(const Accelerator& accelerator, std::int64_t start,
                                        const std::function<void(std::int64_t batch_size)>& action);
std::int64_t find_executable_batch_size(
    const Accelerator& accelerator, std::int64_t start,
    const std::function<void(Accelerator& attempt, std::int64_t batch_size)>& action);

}  // namespace lockstep
