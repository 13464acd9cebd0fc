#include <fmt/core.h>

#include <charconv>
#include <iostream>

#include "lockstep/comm/cuda.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/train/accelerator.hpp"

namespace lockstep {
namespace {

/// Why the process has no CUDA device.
std::string no_device_reason() {
  const std::string obstacle = cuda_obstacle();
  return obstacle.empty() ? "no driver, no device in CUDA_VISIBLE_DEVICES, or LOCKSTEP_CUDA is off"
                          : obstacle;
}

at::Device cuda_device(const std::string& name, int index) {
  const int count = cuda_device_count();
  if (index >= 0 && index < count) return {at::kCUDA, static_cast<at::DeviceIndex>(index)};
  throw UsageError(
      fmt::format("device '{}' means CUDA device {}, but this process can use {} CUDA device{}: {}. "
                  "To use the CPU, set the device to 'cpu'",
                  name, index, count, count == 1 ? "" : "s",
                  count == 0 ? no_device_reason() : "start fewer ranks on this host"));
}

/// Warns once per process, because a training that could use a GPU must not silently run on the CPU.
void warn_of_passed_over_device() {
  static const bool warned = [] {
    const std::string obstacle = cuda_obstacle();
    if (obstacle.empty()) return false;
    std::cerr
        << fmt::format(
               "lockstep: warning: device 'auto' selects the CPU, because no CUDA device can be used: {}. "
               "To use the CPU without this warning, set the device to 'cpu' or CUDA_VISIBLE_DEVICES to ''\n",
               obstacle)
        << std::flush;
    return true;
  }();
  static_cast<void>(warned);
}

at::Device best_device(int local_rank) {
  if (cuda_device_count() > 0) return cuda_device("auto", local_rank);
  warn_of_passed_over_device();
  return at::kCPU;
}

}  // namespace

at::Device choose_device(const std::string& name, int local_rank) {
  if (name == "cpu") return at::kCPU;
  if (name == "auto") return best_device(local_rank);
  if (name == "cuda") return cuda_device(name, local_rank);
  const std::string prefix = "cuda:";
  int index = -1;
  const char* end = name.data() + name.size();
  const bool numbered =
      name.starts_with(prefix) && std::from_chars(name.data() + prefix.size(), end, index).ptr == end;
  if (!numbered || index < 0) {
    throw UsageError("'" + name +
                     "' is not a device: expected auto, cpu, cuda, or cuda and a number as in cuda:0");
  }
  return cuda_device(name, index);
}

}  // namespace lockstep
