#include "comm/cuda/availability.hpp"

#include <fmt/core.h>

#include <cctype>
#include <filesystem>

#include "lockstep/core/error.hpp"

namespace lockstep::comm {

CudaLoading cuda_loading(const Environment& environment, bool has_driver) {
  const std::string value = find_variable(environment, "LOCKSTEP_CUDA").value_or("auto");
  if (value == "on") return CudaLoading::at_start;
  if (value == "off") return CudaLoading::never;
  if (value != "auto")
    throw UsageError(fmt::format("LOCKSTEP_CUDA is '{}': expected auto, on or off", value));
  return has_driver && !hides_cuda_devices(environment) ? CudaLoading::at_start : CudaLoading::on_demand;
}

bool hides_cuda_devices(const Environment& environment) {
  const auto visible = find_variable(environment, "CUDA_VISIBLE_DEVICES");
  if (!visible) return false;
  const auto first = visible->find_first_not_of(' ');
  if (first == std::string::npos) return true;
  const std::string_view list = std::string_view(*visible).substr(first);
  return std::isdigit(static_cast<unsigned char>(list.front())) == 0 && !list.starts_with("GPU-") &&
         !list.starts_with("MIG-");
}

bool has_cuda_driver() {
  return std::filesystem::exists("/dev/nvidiactl") || std::filesystem::exists("/dev/dxg");
}

}  // namespace lockstep::comm
