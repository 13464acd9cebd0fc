#pragma once

#include "lockstep/core/environment.hpp"

// Needs neither CUDA nor LibTorch.
namespace lockstep::comm {

/// When this process loads Lockstep's CUDA library.
enum class CudaLoading {
  /// At the start of the program.
  at_start,
  /// When a CUDA device is requested explicitly.
  on_demand,
  never,
};

/// Evaluates LOCKSTEP_CUDA: `on` is at_start, `off` is never. `auto`, the default, is at_start if the driver
/// is installed (`has_driver`) and CUDA_VISIBLE_DEVICES does not hide all devices, otherwise on_demand.
/// Throws UsageError for any other value. *Local*.
CudaLoading cuda_loading(const Environment& environment, bool has_driver);

/// Whether CUDA_VISIBLE_DEVICES hides all devices. CUDA stops at the first entry that is not a device, so an
/// empty value, "-1" and Slurm's "NoDevFiles" do. *Local*.
bool hides_cuda_devices(const Environment& environment);

}  // namespace lockstep::comm
