#pragma once

#include <filesystem>

namespace lockstep {

/// Whether NVIDIA's driver is available to this process: its control device, or that of WSL, exists. *Local*.
inline bool has_cuda_driver() {
  return std::filesystem::exists("/dev/nvidiactl") || std::filesystem::exists("/dev/dxg");
}

}  // namespace lockstep
