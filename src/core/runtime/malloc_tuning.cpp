#include "core/runtime/malloc_tuning.hpp"

#include <malloc.h>

#include <limits>

namespace lockstep {
namespace {

/// Whether the user has configured the C library's malloc.
bool is_tuned_already(const Environment& environment) {
  const auto tunables = find_variable(environment, "GLIBC_TUNABLES");
  if (tunables && tunables->find("glibc.malloc") != std::string::npos) return true;
  for (const auto* name : {"MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_"}) {
    if (environment.contains(name)) return true;
  }
  return false;
}

bool set_limits() {
#ifdef __GLIBC__
  // The largest block that is allocated on the heap: larger ones would be mapped, cleared and unmapped.
  constexpr int kUnlimited = std::numeric_limits<int>::max();
  constexpr int kGrowth = 64 << 20;  // Minimum growth of the heap in bytes.
  return ::mallopt(M_MMAP_THRESHOLD, kUnlimited) == 1 && ::mallopt(M_TRIM_THRESHOLD, kUnlimited) == 1 &&
         ::mallopt(M_TOP_PAD, kGrowth) == 1;
#else
  return false;
#endif
}

}  // namespace

bool tune_malloc(const Environment& environment) {
  if (find_variable(environment, "LOCKSTEP_KEEP_MEMORY") == "0") return false;
  return !is_tuned_already(environment) && set_limits();
}

}  // namespace lockstep
