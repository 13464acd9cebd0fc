#pragma once

#include <string>

namespace lockstep {

/// How many CUDA devices this process can use. 0 on a machine without NVIDIA's driver, where
/// CUDA_VISIBLE_DEVICES hides all devices or LOCKSTEP_CUDA is off, and where Lockstep's CUDA library was left
/// out of the build. *Local*, any thread. Throws UsageError when driver and library are there and the library
/// cannot be loaded: a GPU must not be passed over in silence.
///
/// LOCKSTEP_CUDA says when that library is loaded, as the program starts: `auto` (the default) where NVIDIA's
/// driver shows and CUDA_VISIBLE_DEVICES does not hide all devices; `on` everywhere; `off` never. It takes a
/// few hundred megabytes of a process, which `off`, or an empty CUDA_VISIBLE_DEVICES, saves a program that
/// uses the CPU alone.
int cuda_device_count();

/// Why this process can use no device although NVIDIA's driver is there: the CUDA library was not built, the
/// driver is too old, or offers no device. "" where there is a device, no driver, or the environment asks for
/// none. *Local*, any thread. Throws as cuda_device_count().
std::string cuda_obstacle();

/// What CUDA calls the model of a device of this process: "NVIDIA H200". *Local*, any thread. Throws as
/// cuda_device_count().
std::string cuda_device_name(int index);

/// The pairs of CUDA devices of which each reaches the other's memory directly (peer to peer, by NVLink or
/// PCIe): "all", "none", or "0-1, 2-3"; empty for fewer than two devices. Where devices do not, NCCL goes
/// through the host's memory. *Local*, any thread. Throws as cuda_device_count().
std::string cuda_peer_access();

/// The version of NCCL, "2.28.9"; empty where there is no CUDA device. *Local*, any thread. Throws as
/// cuda_device_count().
std::string nccl_version();

}  // namespace lockstep
