#pragma once

namespace lockstep {

/// How many CUDA devices this process can use: 0 on a machine without NVIDIA's driver, or where Lockstep's CUDA library
/// was left out of the build. Loads that library only where the driver is present. *Local*, any thread.
int cuda_device_count();

}  // namespace lockstep
