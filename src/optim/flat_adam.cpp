#include "optim/flat_adam.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/cuda_arguments.hpp"
#include "kernels/fused_kernels.hpp"
#include "kernels/remembered.hpp"
#include "kernels/self_check.hpp"
#include "optim/flat_adam_check.hpp"

namespace lockstep::optim {
namespace {

constexpr int kThreads = 256;
/// Elements of a block.
constexpr std::int64_t kPart = std::int64_t{kThreads} * 4 * 8;

float* values_of(const at::Tensor& tensor) { return tensor.mutable_data_ptr<float>(); }

const float* number_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<float>() : nullptr;
}

bool fits(const AdamLists& lists, std::size_t i) {
  const at::Tensor& parameter = lists.parameters[i];
  const auto is_like = [&](const at::Tensor& part) {
    return part.scalar_type() == at::kFloat && part.device() == parameter.device() &&
           part.sizes() == parameter.sizes() && part.strides() == parameter.strides();
  };
  return is_like(parameter) && parameter.is_non_overlapping_and_dense() && is_like(lists.gradients[i]) &&
         is_like(lists.averages[i]) && is_like(lists.squares[i]) &&
         (lists.maxima.empty() || is_like(lists.maxima[i]));
}

kernels::AdamScalars scalars_of(const AdamNumbers& numbers) {
  return {.rate_there = number_of(numbers.rate_there),
          .step_there = number_of(numbers.step_there),
          .left_out = number_of(numbers.left_out),
          .found_inf = number_of(numbers.found_inf),
          .factor = number_of(numbers.factor),
          .rate = static_cast<float>(numbers.rate),
          .step = static_cast<float>(numbers.step),
          .beta1 = static_cast<float>(numbers.beta1),
          .beta2 = static_cast<float>(numbers.beta2),
          .weight_decay = static_cast<float>(numbers.weight_decay),
          .eps = static_cast<float>(numbers.eps)};
}

/// Null if it cannot be compiled, or has not proven itself.
const kernels::CudaKernel* proven_kernel(const AdamKind& kind, const at::Device& device) {
  const std::string instance =
      fmt::format("adam<{}, {}, {}>", kind.is_decoupled, kind.has_maxima, kind.maximizes);
  const auto* const kernel = kernels::find_kernel("adam", instance, device);
  if (kernel == nullptr) return nullptr;
  const bool is_proven =
      kernels::is_proven("steps by " + instance, device, [&] { check_flat_adam(*kernel, kind, device); });
  return is_proven ? kernel : nullptr;
}

}  // namespace

const kernels::CudaKernel* find_flat_adam(const AdamLists& lists, bool is_decoupled, bool maximizes) {
  const at::Tensor& first = lists.parameters.front();
  if (!first.is_cuda() && kernels::kernel_device_of_tests() == nullptr) return nullptr;
  if (!kernels::use_fused()) return nullptr;
  for (std::size_t i = 0; i < lists.parameters.size(); ++i) {
    if (!fits(lists, i)) return nullptr;
  }
  const AdamKind kind{
      .is_decoupled = is_decoupled, .has_maxima = !lists.maxima.empty(), .maximizes = maximizes};
  const auto device = first.device();
  thread_local kernels::Remembered<const kernels::CudaKernel*, int, bool, bool, bool> known;
  return known.get({device.index(), kind.is_decoupled, kind.has_maxima, kind.maximizes},
                   [&] { return proven_kernel(kind, device); });
}

void step_flat_adam(const kernels::CudaKernel& kernel, const AdamLists& lists, const AdamNumbers& numbers) {
  const kernels::AdamScalars scalars = scalars_of(numbers);
  const auto tensors = std::make_unique<kernels::AdamTensors>();
  std::int64_t blocks = 0;
  const auto launch = [&] {
    if (blocks > 0) kernel.launch({.blocks = blocks, .threads = kThreads}, *tensors, scalars);
    tensors->count = blocks = 0;
  };
  for (std::size_t i = 0; i < lists.parameters.size(); ++i) {
    const std::int64_t size = lists.parameters[i].numel();
    if (size == 0) continue;
    tensors->at[tensors->count++] = {.parameter = values_of(lists.parameters[i]),
                                     .gradient = values_of(lists.gradients[i]),
                                     .average = values_of(lists.averages[i]),
                                     .square = values_of(lists.squares[i]),
                                     .maximum = lists.maxima.empty() ? nullptr : values_of(lists.maxima[i]),
                                     .size = size,
                                     .first_block = blocks};
    blocks += (size + kPart - 1) / kPart;
    if (tensors->count == kernels::AdamTensors::kMost) launch();
  }
  launch();
}

}  // namespace lockstep::optim
