#include "train/state/host_copies.hpp"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace lockstep::train {
namespace {

/// LibTorch rounds page-locked memory up to a power of two, and locking it takes about half a second per GiB.
/// So copies share blocks: the first one is small, each of the others twice as large as the one before.
constexpr std::int64_t kFirstBlock = std::int64_t{1} << 22;
constexpr std::int64_t kLargestBlock = std::int64_t{1} << 28;
constexpr std::int64_t kAlignment = 64;

at::Tensor page_locked(std::int64_t bytes) {
  return at::empty({bytes}, at::TensorOptions(at::kByte).pinned_memory(true));
}

}  // namespace

at::Tensor HostCopies::page_locked_like(const at::Tensor& tensor) {
  const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
  const auto view = [&](const at::Tensor& memory) {
    return memory.view(tensor.scalar_type()).view(tensor.sizes());
  };
  if (bytes > kLargestBlock) return view(page_locked(bytes));
  if (!block_.defined() || used_ + bytes > block_.numel()) {
    std::int64_t size = block_.defined() ? std::min(2 * block_.numel(), kLargestBlock) : kFirstBlock;
    while (size < bytes) size *= 2;
    block_ = page_locked(size);
    used_ = 0;
  }
  const at::Tensor memory = block_.narrow(0, used_, bytes);
  used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return view(memory);
}

at::Tensor HostCopies::copy(const at::Tensor& tensor) {
  if (!tensor.is_cuda()) return tensor.detach().clone(at::MemoryFormat::Contiguous);
  devices_.emplace(tensor.get_device(), tensor.device());
  return page_locked_like(tensor).copy_(tensor.detach(), /*non_blocking=*/true);
}

void HostCopies::wait() {
  for (const auto& [index, device] : devices_) {
    const c10::impl::VirtualGuardImpl guard(device.type());
    guard.synchronizeStream(guard.getStream(device));
  }
  devices_.clear();
}

}  // namespace lockstep::train
