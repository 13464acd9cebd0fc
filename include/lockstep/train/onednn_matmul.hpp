#pragma once

#include "lockstep/core/environment.hpp"

namespace lockstep {

/// Uses oneDNN for large float32 matrix products on the CPU, instead of LibTorch's MKL: `mm`, `addmm`, `bmm`,
/// `baddbmm`, and so linear layers and matmul, forward and backward. On non-Intel processors MKL uses no
/// AVX-512; oneDNN, which is also part of LibTorch, takes less than half the time. Results differ by rounding
/// and are as reproducible. Small products, other dtypes and other devices are not affected.
///
/// Applies to the whole process and is done once; Accelerator calls it for a CPU unless its options say
/// otherwise. LOCKSTEP_ONEDNN_MATMUL in `environment` decides: 1 enables it, 0 disables it. If it is unset,
/// it is enabled on non-Intel processors with AVX-512, unless ATEN_CPU_CAPABILITY, MKL_CBWR or
/// ONEDNN_MAX_CPU_ISA request certain instructions. No effect if LibTorch was built without oneDNN, or on a
/// CPU without AVX-512 (BW, VL and DQ), where LibTorch refuses to call it. Returns whether oneDNN is now
/// used. *Local*; call it before other threads compute. Throws UsageError for another value.
bool use_onednn_matmul(const Environment& environment);

}  // namespace lockstep
