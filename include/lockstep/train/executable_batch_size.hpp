#pragma once

#include <cstdint>
#include <functional>

#include "lockstep/train/accelerator.hpp"

namespace lockstep {

/// Calls `action` with `start`, and again with nine tenths of it (rounded down, as Accelerate does) while
/// some rank runs out of memory, and returns the size with which it ended well. All ranks agree after every
/// attempt, so that they go on with the same size even when the memory of one alone was too small. Between two
/// attempts the device's allocator gives back what it keeps for later.
///
///     const auto batch_size = lockstep::find_executable_batch_size(accelerator, 128, [&](std::int64_t size)
///     {
///       train_with(size);
///     });
///
/// An attempt must end on every rank: where `action` waits for the others, a rank that ran out of memory
/// leaves them waiting for the group's timeout. So try a forward and a backward of the bare model first,
/// which is where memory runs out. `action` must not keep tensors of an attempt that failed.
///
/// Out of memory are std::bad_alloc and LibTorch's OutOfMemoryError, and its complaint that an allocator
/// cannot allocate. Any other exception ends the search, on every rank. *Collective*. Throws UsageError for a
/// start below 1, and Error when not even one sample fits.
std::int64_t find_executable_batch_size(const Accelerator& accelerator, std::int64_t start,
                                        const std::function<void(std::int64_t batch_size)>& action);

}  // namespace lockstep
