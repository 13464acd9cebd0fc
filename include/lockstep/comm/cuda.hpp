#pragma once

#include <string>

namespace lockstep {

/// How many CUDA devices this process can use: 0 on a machine without NVIDIA's driver, or where Lockstep's
/// CUDA library was left out of the build. Loads that library only where the driver is present. *Local*, any
/// thread. Throws UsageError when both are there and the library cannot be loaded: a GPU must not be passed
/// over in silence.
int cuda_device_count();

/// The pairs of CUDA devices of which each reaches the other's memory directly (peer to peer, by NVLink or
/// PCIe): "all", "none", or "0-1, 2-3"; empty for fewer than two devices. Where devices do not, NCCL goes
/// through the host's memory. *Local*, any thread. Throws as cuda_device_count().
std::string cuda_peer_access();

/// The version of NCCL, "2.28.9"; empty where there is no CUDA device. *Local*, any thread. Throws as
/// cuda_device_count().
std::string nccl_version();

}  // namespace lockstep
