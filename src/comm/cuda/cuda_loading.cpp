#include "comm/cuda/cuda_loading.hpp"

#include <fmt/core.h>

#include <string>

#include "core/visible_devices.hpp"
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
  const auto devices = visible_devices(environment);
  return devices && devices->empty();
}

}  // namespace lockstep::comm
