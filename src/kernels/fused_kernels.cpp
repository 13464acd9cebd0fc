#include "kernels/fused_kernels.hpp"

#include <ATen/autocast_mode.h>

#include <atomic>

#include "kernels/cuda_kernel.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

std::atomic<FusedKernels> wanted{FusedKernels::automatic};

/// Of the environment, read once.
bool is_allowed() {
  static const bool allowed = [] {
    const std::string value = find_variable(process_environment(), "LOCKSTEP_FUSED_KERNELS").value_or("auto");
    if (value != "auto" && value != "off")
      throw UsageError("LOCKSTEP_FUSED_KERNELS is '" + value + "': expected auto or off");
    return value == "auto";
  }();
  return allowed;
}

}  // namespace

void set_fused_kernels(FusedKernels kernels) { wanted = kernels; }

namespace kernels {

bool use_fused() { return wanted == FusedKernels::automatic && is_allowed(); }

std::optional<at::ScalarType> fused_dtype(const at::Tensor& input) {
  if (!input.is_cuda() && kernel_device_of_tests() == nullptr) return std::nullopt;
  if (!use_fused()) return std::nullopt;
  const auto device = input.device().type();
  const bool casts = at::autocast::is_autocast_enabled(device) && input.is_floating_point() &&
                     input.scalar_type() != at::kDouble;
  const auto dtype = casts ? at::autocast::get_autocast_dtype(device) : input.scalar_type();
  return c10::isReducedFloatingType(dtype) ? std::optional(dtype) : std::nullopt;
}

}  // namespace kernels
}  // namespace lockstep
