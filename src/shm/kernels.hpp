#pragma once

#include <cstddef>
#include <vector>

#include "shm/types.hpp"

namespace lockstep::shm {

/// Reduces the sources element by element, in the order given, and writes the result to every destination. A
/// destination may be one of the sources, at the same elements; no other overlap is allowed. bfloat16 and
/// float16 are accumulated in float32 and rounded once. `avg` divides by the number of sources. The minimum
/// or maximum of a NaN and a number is NaN. Integers wrap. For bool, sum is "or" and product is "and".
using Reducer = void (*)(const void* const* sources, int source_count, void* const* destinations,
                         int destination_count, std::size_t elements);

/// The reducers for one instruction set; null for undefined combinations (bitwise operations on floating
/// point; averages of integers).
struct Kernels {
  const char* name;
  Reducer reducers[kDtypes][kReductions];
};

/// The fastest set that this CPU supports.
const Kernels& kernels();

/// The sets that this CPU supports, the portable one first; tests compare them.
std::vector<const Kernels*> usable_kernels();

/// The reducer of kernels(). Throws UsageError for an undefined combination.
Reducer reducer_for(Dtype dtype, Reduction reduction);

#if defined(__x86_64__)
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
#endif

}  // namespace lockstep::shm
