#pragma once

#include "lockstep/core/environment.hpp"

namespace lockstep {

/// Tells the C library to keep large blocks of memory for the next request and not to give each back to the
/// system, which clears it and hands it out again page by page: training asks for blocks of the same sizes
/// in every step. Saves up to a third of a step on CPUs, and holds on to the largest amount of memory that
/// was ever in use at once. For the whole process, once; made by Accelerator unless its options say
/// otherwise. Does nothing where LOCKSTEP_KEEP_MEMORY is 0, where another allocator or the C library's own
/// variables (MALLOC_*_, glibc.malloc tunables) decide, and where the C library is not glibc. Returns
/// whether it has done something. *Local*.
bool tune_malloc(const Environment& environment);

}  // namespace lockstep
