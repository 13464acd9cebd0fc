#pragma once

#include <string>

namespace lockstep {

/// Number of CUDA devices that this process can use. 0 if there is no NVIDIA driver, if CUDA_VISIBLE_DEVICES
/// hides all devices, if LOCKSTEP_CUDA is `off`, or if Lockstep was built without its CUDA library. *Local*,
/// any thread. Throws UsageError if driver and library are installed but the library cannot be loaded, so
/// that a GPU is never silently ignored.
///
/// LOCKSTEP_CUDA selects whether the library is loaded when the program starts. `auto` (the default): if
/// NVIDIA's driver is found and CUDA_VISIBLE_DEVICES does not hide all devices; `on`: always; `off`: never.
/// The library takes a few hundred megabytes of memory; `off` or an empty CUDA_VISIBLE_DEVICES avoids this
/// for programs that use only the CPU.
int cuda_device_count();

/// The reason why this process can use no device although NVIDIA's driver is installed or LOCKSTEP_CUDA is
/// `on`: the CUDA library was not built, the driver is too old, or there is no device. "" if there is a
/// device, no driver, or if the environment disables CUDA. *Local*, any thread. Throws as cuda_device_count()
/// does.
std::string cuda_obstacle();

/// The model name of a device of this process, for example "NVIDIA H200". *Local*, any thread. Throws as
/// cuda_device_count() does.
std::string cuda_device_name(int index);

/// The pairs of CUDA devices that can access each other's memory directly (peer to peer, over NVLink or
/// PCIe): "all", "none", or "0-1, 2-3"; empty for fewer than two devices. Between other devices NCCL copies
/// through host memory. *Local*, any thread. Throws as cuda_device_count() does.
std::string cuda_peer_access();

/// The version of NCCL, for example "2.28.9"; empty if there is no CUDA device. *Local*, any thread. Throws
/// as cuda_device_count() does.
std::string nccl_version();

enum class SyncDebugMode { off, warn, error };

/// torch.cuda.set_sync_debug_mode: whether LibTorch warns, or throws c10::Error, where the host waits for a
/// CUDA device: `item()`, copies to the CPU, and copies to the device from memory that is not page-locked. A
/// training step that never waits keeps the device busy. Applies to all threads. Throws UsageError if there
/// is no CUDA library.
void set_sync_debug_mode(SyncDebugMode mode);

}  // namespace lockstep
