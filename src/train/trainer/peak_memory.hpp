#pragma once

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>

namespace lockstep::train {

/// The largest size of this process so far, in MiB; 0 if the system does not say. *Local*. Not getrusage's:
/// that begins with the size of the process from which this program was started.
inline double peak_resident_mib() {
  std::ifstream lines("/proc/self/status");
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("VmHWM:")) return std::strtod(line.c_str() + 6, nullptr) / 1024.0;  // In KiB.
  }
  return 0;
}

/// The most memory that tensors had on a CUDA device so far, in MiB; nothing for another device. *Local*.
inline std::optional<double> peak_allocated_mib(const at::Device& device) {
  if (!device.is_cuda()) return std::nullopt;
  const auto stats = at::getDeviceAllocator(at::kCUDA)->getDeviceStats(device.index());
  const auto total = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return static_cast<double>(stats.allocated_bytes[total].peak) / (1024.0 * 1024.0);
}

}  // namespace lockstep::train
