#include "kernels/scaled_copies.hpp"

#include <ATen/ATen.h>
#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "kernels/cuda_arguments.hpp"
#include "kernels/cuda_kernel.hpp"
#include "kernels/fused_kernels.hpp"
#include "kernels/remembered.hpp"
#include "kernels/self_check.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::kernels {
namespace {

constexpr int kCopyThreads = 256;
/// Elements of a block.
constexpr std::int64_t kCopyPart = std::int64_t{kCopyThreads} * 4 * 8;

bool is_copied_dtype(at::ScalarType dtype) {
  return dtype == at::kFloat || c10::isReducedFloatingType(dtype);
}

/// The dtypes of all.
struct CopiedDtypes {
  at::ScalarType from, to;
};

const CudaKernel* copy_kernel(const at::Device& device, const CopiedDtypes& dtypes) {
  thread_local Remembered<const CudaKernel*, int, at::ScalarType, at::ScalarType> known;
  return known.get({device.index(), dtypes.from, dtypes.to}, [&] {
    return find_kernel("scaled_copies",
                       fmt::format("scaled_copies<{}, {}>", cuda_type(dtypes.from), cuda_type(dtypes.to)),
                       device);
  });
}

/// More than a block, a few elements, and some at an odd address.
void check_scaled_copies(const at::Device& device, const CopiedDtypes& dtypes) {
  Tensors from, to, exact;
  for (const std::int64_t size : {9001, 5, 131}) {
    const at::Tensor values = waves({size + 1}, dtypes.from, device, static_cast<double>(size)).detach();
    from.push_back(values.narrow(0, size == 131 ? 1 : 0, size));
    to.push_back(at::empty({size + 1}, values.options().dtype(dtypes.to)).narrow(0, size == 5 ? 1 : 0, size));
    exact.push_back(from.back().to(dtypes.to) * (1.0 / 3));
  }
  write_scaled_copies(from, to, 1.0 / 3);
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (!at::equal(to[i], exact[i])) throw Error("some values differ; all have the bits of LibTorch's");
  }
}

}  // namespace

bool takes_scaled_copies(const std::vector<at::Tensor>& from, const std::vector<at::Tensor>& to) {
  if (from.empty() || !use_fused()) return false;
  const at::Tensor &first = from.front(), &target = to.front();
  if (!first.is_cuda() && kernel_device_of_tests() == nullptr) return false;
  const CopiedDtypes dtypes{.from = first.scalar_type(), .to = target.scalar_type()};
  const auto device = first.device();
  const auto fits = [&](const at::Tensor& tensor, at::ScalarType dtype) {
    return tensor.layout() == at::kStrided && tensor.scalar_type() == dtype && tensor.device() == device &&
           tensor.is_contiguous();
  };
  if (!is_copied_dtype(dtypes.from) || !is_copied_dtype(dtypes.to)) return false;
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (!fits(from[i], dtypes.from) || !fits(to[i], dtypes.to) || from[i].numel() != to[i].numel())
      return false;
  }
  thread_local Remembered<bool, int, at::ScalarType, at::ScalarType> known;
  return known.get({device.index(), dtypes.from, dtypes.to}, [&] {
    return copy_kernel(device, dtypes) != nullptr &&
           is_proven(
               fmt::format("copies of gradients from {} to {}", cuda_type(dtypes.from), cuda_type(dtypes.to)),
               device, [&] { check_scaled_copies(device, dtypes); });
  });
}

void write_scaled_copies(const std::vector<at::Tensor>& from, const std::vector<at::Tensor>& to,
                         double factor) {
  const auto& kernel = *copy_kernel(from.front().device(),
                                    {.from = from.front().scalar_type(), .to = to.front().scalar_type()});
  const auto tensors = std::make_unique<CopyTensors>();
  tensors->count = 0;
  std::int64_t blocks = 0;
  const auto launch = [&] {
    if (blocks > 0)
      kernel.launch({.blocks = blocks, .threads = kCopyThreads}, *tensors, static_cast<float>(factor));
    tensors->count = blocks = 0;
  };
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::int64_t size = from[i].numel();
    if (size == 0) continue;
    tensors->at[tensors->count++] = {.from = from[i].const_data_ptr(),
                                     .to = to[i].mutable_data_ptr(),
                                     .size = size,
                                     .first_block = blocks};
    blocks += (size + kCopyPart - 1) / kCopyPart;
    if (tensors->count == CopyTensors::kMost) launch();
  }
  launch();
}

}  // namespace lockstep::kernels
