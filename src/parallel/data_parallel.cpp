#include "lockstep/parallel/data_parallel.hpp"

#include <fmt/core.h>

#include "lockstep/comm/cuda.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

DataParallelOptions resolved(DataParallelOptions options) {
  auto& devices = options.devices;
  if (devices.empty()) {
    for (int i = 0; i < cuda_device_count(); ++i)
      devices.emplace_back(at::kCUDA, static_cast<at::DeviceIndex>(i));
    if (devices.empty()) devices.emplace_back(at::kCPU);
  }
  for (const auto& device : devices) {
    if (device.type() == devices.front().type()) continue;
    throw UsageError(fmt::format("DataParallel: expected devices of one kind, but there are {} and {}",
                                 devices.front().str(), device.str()));
  }
  if (!options.output_device) options.output_device = devices.front();
  return options;
}

}  // namespace lockstep
