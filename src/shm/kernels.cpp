#include "shm/kernels.hpp"

#include <fmt/core.h>

#include "lockstep/core/error.hpp"
#include "shm/kernels_loops.hpp"

namespace lockstep::shm {

namespace {

constinit const Kernels kPortableKernels = make_kernels("portable");

}  // namespace

KernelList usable_kernels() {
  KernelList list{{&kPortableKernels, nullptr, nullptr}, 1};
#if defined(__x86_64__)
  __builtin_cpu_init();
  // Every CPU with AVX2 has F16C, but a hypervisor may hide either.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  if (avx2) list.sets[list.count++] = &kAvx2Kernels;
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    list.sets[list.count++] = &kAvx512Kernels;
  }
#endif
  return list;
}

const Kernels& kernels() {
  static const KernelList list = usable_kernels();
  return *list.sets[list.count - 1];
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
