#pragma once

#include <string>
#include <vector>

#include "lockstep/core/environment.hpp"

namespace lockstep::launch {

/// The NUMA node of every NVIDIA GPU that a program would see, in the order of CUDA_VISIBLE_DEVICES, as
/// `<sys>/bus/pci/devices/<address>/numa_node` says it; -1 there means 0. The GPUs are those of
/// `<proc>/driver/nvidia/gpus`, else the display devices of NVIDIA on the PCI bus, in the order of their
/// addresses: CUDA's own order on a host whose GPUs are all alike. Throws UsageError that names what is
/// missing. *Local*.
std::vector<int> gpu_nodes(const Environment& environment, const std::string& sys = "/sys",
                           const std::string& proc = "/proc");

}  // namespace lockstep::launch
