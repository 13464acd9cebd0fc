#include "kernels/loss_factor.hpp"

#include <ATen/ATen.h>

#include <string>

#include "kernels/cuda_kernel.hpp"
#include "kernels/fused_kernels.hpp"
#include "kernels/kernel_arguments.hpp"
#include "kernels/remembered.hpp"
#include "kernels/self_check.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::kernels {
namespace {

constexpr int kFactorThreads = 256;
/// Elements of a block.
constexpr std::int64_t kFactorPart = std::int64_t{kFactorThreads} * 4 * 8;

std::int64_t count_of(const at::Tensor& gradient) { return gradient.defined() ? gradient.numel() : 0; }

const CudaKernel* factor_kernel(const at::Device& device, at::ScalarType weight) {
  thread_local Remembered<const CudaKernel*, int, at::ScalarType> known;
  return known.get({device.index(), weight}, [&] {
    return find_kernel("loss_factor", "multiply_gradients<bf16, " + cuda_type(weight) + ">", device);
  });
}

at::ScalarType dtype_of_weight(const LossGradients& gradients) {
  return gradients.weight.defined() ? gradients.weight.scalar_type() : at::kFloat;
}

/// More than a block, and elements at an odd address.
void check_loss_factor(at::ScalarType weight, const at::Device& device) {
  const at::Tensor states = waves({9001}, at::kBFloat16, device, 1).detach(),
                   values = waves({132}, weight, device, 2).detach().narrow(0, 1, 131);
  for (const double number : {1.0, 0.3}) {
    const at::Tensor factor = at::full({}, number, at::TensorOptions(at::kFloat).device(device));
    const LossGradients got{.states = states.clone(), .weight = values.clone()};
    multiply_by_loss_factor(got, factor);
    if (!at::equal(got.states, states * factor.to(at::kBFloat16)) ||
        !at::equal(got.weight, values * factor.to(weight)))
      throw Error("some values differ; all have the bits of LibTorch's");
  }
}

}  // namespace

bool takes_loss_factor(const LossGradients& gradients, const at::Tensor& factor) {
  const auto device = factor.device();
  if (!use_fused() || (!device.is_cuda() && kernel_device_of_tests() == nullptr)) return false;
  const auto fits = [&](const at::Tensor& gradient) {
    return !gradient.defined() || (gradient.is_contiguous() && gradient.device() == device);
  };
  const auto weight = dtype_of_weight(gradients);
  const bool is_taken = (!gradients.states.defined() || gradients.states.scalar_type() == at::kBFloat16) &&
                        (weight == at::kFloat || weight == at::kBFloat16);
  if (!is_taken || !fits(gradients.states) || !fits(gradients.weight) || factor.scalar_type() != at::kFloat ||
      factor.numel() != 1 || count_of(gradients.states) + count_of(gradients.weight) == 0)
    return false;
  thread_local Remembered<bool, int, at::ScalarType> known;
  return known.get({device.index(), weight}, [&] {
    return factor_kernel(device, weight) != nullptr &&
           is_proven("gradients of losses with weights in " + cuda_type(weight), device,
                     [&] { check_loss_factor(weight, device); });
  });
}

void multiply_by_loss_factor(const LossGradients& gradients, const at::Tensor& factor) {
  const auto states = count_of(gradients.states), weight = count_of(gradients.weight);
  const auto blocks_of = [](std::int64_t count) { return (count + kFactorPart - 1) / kFactorPart; };
  factor_kernel(factor.device(), dtype_of_weight(gradients))
      ->launch({.blocks = blocks_of(states) + blocks_of(weight), .threads = kFactorThreads},
               data_to(gradients.states), states, data_to(gradients.weight), weight, factor.const_data_ptr());
}

}  // namespace lockstep::kernels
