#pragma once

#include <cstdint>
#include <functional>

#include "lockstep/train/accelerator.hpp"

namespace lockstep {

/// Calls `action` with `start`, and again with nine tenths of it (rounded down, as Accelerate does) while
/// some rank runs out of memory, and returns the size with which it ended well. All ranks agree after every
/// attempt, so that they go on with the same size even when the memory of one alone was too small. Between
/// two attempts the device's allocator gives back what it keeps for later.
///
///     const auto batch_size = lockstep::find_executable_batch_size(accelerator, 128, [&](std::int64_t size)
///     {
///       train_with(size);
///     });
///
/// An `action` that waits for other ranks, in a prepared model's backward for example, takes the Accelerator
/// of the attempt and uses it for all that it prepares and exchanges:
///
///     lockstep::find_executable_batch_size(accelerator, 128, [&](lockstep::Accelerator& attempt,
///                                                                std::int64_t size) {
///       train_with(attempt, size);
///     });
///
/// It is on a group of its own, with the same ranks and options. A rank that runs out of memory leaves that
/// group; the others' exchanges end with a CommunicationError then, which counts as part of the same attempt.
/// (On CPUs. NCCL's watchdog ends a process whose exchange fails: on GPUs try a forward and a backward of the
/// bare model first.) An `action` that takes the size alone must not wait for other ranks. `action` must not
/// keep tensors of an attempt that failed.
///
/// Out of memory are std::bad_alloc and LibTorch's OutOfMemoryError, and its complaint that an allocator
/// cannot allocate. Any other exception ends the search, on every rank. *Collective*. Throws UsageError for a
/// start below 1, and Error when not even one sample fits.
std::int64_t find_executable_batch_size(const Accelerator& accelerator, std::int64_t start,
                                        const std::function<void(std::int64_t batch_size)>& action);
std::int64_t find_executable_batch_size(
    const Accelerator& accelerator, std::int64_t start,
    const std::function<void(Accelerator& attempt, std::int64_t batch_size)>& action);

}  // namespace lockstep
