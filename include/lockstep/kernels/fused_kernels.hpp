#pragma once

namespace lockstep {

/// Whether the models use Lockstep's own CUDA kernels, each of which does the work of several of LibTorch's.
enum class FusedKernels {
  /// On CUDA devices, in bfloat16 and float16, of autocast or of the weights.
  automatic,
  /// LibTorch's operations alone, with their bits.
  off,
};

/// Sets it for the whole process, before the first step; AcceleratorOptions::fused_kernels does so. The
/// environment variable LOCKSTEP_FUSED_KERNELS=off turns them off whatever is set. *Local*.
void set_fused_kernels(FusedKernels kernels);

}  // namespace lockstep
