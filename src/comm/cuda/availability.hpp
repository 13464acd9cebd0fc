#pragma once

#include <string>

#include "lockstep/core/environment.hpp"

namespace lockstep::comm {

/// When this process loads Lockstep's CUDA library.
enum class CudaLoading {
  /// At the start of the program.
  at_start,
  /// When a CUDA device is asked for by name: nothing shows that there is one.
  on_demand,
  never,
};

/// By LOCKSTEP_CUDA: `on` and `off` are at_start and never. `auto`, the default, is at_start where the driver
/// is there (`has_driver`) and CUDA_VISIBLE_DEVICES does not hide all devices, else on_demand. Throws
/// UsageError for any other value. *Local*.
CudaLoading cuda_loading(const Environment& environment, bool has_driver);

/// Whether CUDA_VISIBLE_DEVICES leaves no device: CUDA stops at the first entry that names none, so an empty
/// value, "-1" and Slurm's "NoDevFiles" all do. *Local*.
bool hides_cuda_devices(const Environment& environment);

/// Whether NVIDIA's driver offers devices to this process: its control file, or WSL's. *Local*.
bool has_cuda_driver();

}  // namespace lockstep::comm
