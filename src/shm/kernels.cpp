#include "shm/kernels.hpp"

#include <fmt/core.h>

#include "lockstep/core/error.hpp"
#include "shm/kernels_loops.hpp"

namespace lockstep::shm {

namespace {

constinit const Kernels kPortableKernels = make_kernels("portable");

}  // namespace

std::vector<const Kernels*> usable_kernels() {
  std::vector<const Kernels*> sets{&kPortableKernels};
#if defined(__x86_64__)
  __builtin_cpu_init();
  // Every CPU with AVX2 has F16C, but a hypervisor may hide either one.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  if (avx2) sets.push_back(&kAvx2Kernels);
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    sets.push_back(&kAvx512Kernels);
  }
#endif
  return sets;
}

const Kernels& kernels() {
  static const Kernels& fastest = *usable_kernels().back();
  return fastest;
}

Reducer reducer_for(Dtype dtype, Reduction reduction) {
  const auto row = static_cast<int>(dtype);
  const auto column = static_cast<int>(reduction);
  const Reducer found = row < kDtypes && column < kReductions ? kernels().reducers[row][column] : nullptr;
  if (found != nullptr) return found;
  throw UsageError(
      fmt::format("the reduction '{}' is not defined for {}", name_of(reduction), name_of(dtype)));
}

}  // namespace lockstep::shm
