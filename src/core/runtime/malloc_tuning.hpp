#pragma once

#include "lockstep/core/environment.hpp"

namespace lockstep {

/// Makes malloc keep large blocks for reuse instead of returning them to the system, which would clear and
/// map them again page by page: training allocates blocks of the same sizes in every step. Saves up to a
/// third of a step on CPUs; the process keeps the largest amount of memory that it ever used at once. Applies
/// to the whole process; Accelerator calls it unless its options say otherwise. Does nothing if
/// LOCKSTEP_KEEP_MEMORY is 0, if the C library's own variables (MALLOC_*_, glibc.malloc tunables) are set, or
/// if the C library is not glibc; has no effect on other allocators. Returns whether it has changed the
/// settings. *Local*.
bool tune_malloc(const Environment& environment);

}  // namespace lockstep
