#pragma once

#include <cstddef>
#include <vector>

#include "shm/types.hpp"

namespace lockstep::shm {

/// Combines the sources element by element, in the order given, and writes the result to every destination.
/// A destination may be one of the sources, at the same elements; no other overlap is allowed. bfloat16 and
/// float16 are added up in float32 and rounded once. `avg` divides by the number of sources. Minimum and
/// maximum of a NaN and a number are NaN. Integers wrap. A bool's sum is "or", its product "and".
using Reducer = void (*)(const void* const* sources, int source_count, void* const* destinations,
                         int destination_count, std::size_t elements);

/// One set of reducers for each instruction set; null where the combination makes no sense (bitwise
/// operations and floating point; averages of integers).
struct Kernels {
  const char* name;
  Reducer reducers[kDtypes][kReductions];
};

/// The set that this CPU runs fastest.
const Kernels& kernels();

/// The sets that this CPU can run, the plainest first: tests compare them.
std::vector<const Kernels*> usable_kernels();

/// The reducer of kernels(). Throws UsageError for a combination that makes no sense.
Reducer reducer_for(Dtype dtype, Reduction reduction);

#if defined(__x86_64__)
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
#endif

}  // namespace lockstep::shm
