#pragma once

#include "lockstep/core/environment.hpp"

namespace lockstep {

/// Has oneDNN multiply large matrices of float32 on the CPU, which LibTorch leaves to MKL: `mm`, `addmm`,
/// `bmm`, `baddbmm`, and so linear layers and matmul, forward and backward. On processors that are not
/// Intel's MKL uses no AVX-512, and oneDNN, which is a part of LibTorch too, takes less than half the time.
/// Results differ by rounding and are as repeatable. Small products, other dtypes and devices are multiplied
/// as before.
///
/// For the whole process, once; made by Accelerator for a CPU unless its options say otherwise.
/// LOCKSTEP_ONEDNN_MATMUL in `environment` decides: 1 does it, 0 does not; without it, it is done on
/// processors with AVX-512 that are not Intel's, unless ATEN_CPU_CAPABILITY, MKL_CBWR or ONEDNN_MAX_CPU_ISA
/// ask for certain instructions. Does nothing in a LibTorch without oneDNN, or on a CPU without AVX-512
/// (BW, VL and DQ), where LibTorch refuses to call it. Returns whether products go there now. *Local*; before
/// other threads compute. Throws UsageError for another value.
bool use_onednn_matmul(const Environment& environment);

}  // namespace lockstep
