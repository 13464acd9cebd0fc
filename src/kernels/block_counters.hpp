#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace lockstep::kernels {

/// Memory of the device for `count` numbers that are 0 when the next kernel of the current stream begins,
/// which must leave them at 0: by them its blocks find out which of them is the last (comes_last() of
/// prelude.cu). Kernels of a stream run one after another and share them. Each recorded kernel has its own,
/// because graphs may be replayed on any stream. Null if there are none: then the kernel must do without. Any
/// thread.
unsigned* find_block_counters(const c10::Device& device, std::int64_t count);

}  // namespace lockstep::kernels
