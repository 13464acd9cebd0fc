#include "host_copies.hpp"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace lockstep::train {

at::Tensor HostCopies::copy(const at::Tensor& tensor) {
  const bool is_cuda = tensor.is_cuda();
  if (is_cuda) devices_.emplace(tensor.get_device(), tensor.device());
  const auto options = tensor.options().device(at::kCPU).pinned_memory(is_cuda);
  return at::empty_like(tensor, options, at::MemoryFormat::Contiguous)
      .copy_(tensor.detach(), /*non_blocking=*/is_cuda);
}

void HostCopies::wait() {
  for (const auto& [index, device] : devices_) {
    const c10::impl::VirtualGuardImpl guard(device.type());
    guard.synchronizeStream(guard.getStream(device));
  }
  devices_.clear();
}

}  // namespace lockstep::train
