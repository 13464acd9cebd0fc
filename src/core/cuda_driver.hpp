#pragma once

#include <filesystem>

namespace lockstep {

/// Whether NVIDIA's driver offers devices to this process: its control file, or WSL's. *Local*.
inline bool has_cuda_driver() {
  return std::filesystem::exists("/dev/nvidiactl") || std::filesystem::exists("/dev/dxg");
}

}  // namespace lockstep
