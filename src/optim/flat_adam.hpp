#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "kernels/cuda_kernel.hpp"

namespace lockstep::optim {

/// What a step of Adam changes, besides the gradients; `maxima` are empty without amsgrad.
struct AdamLists {
  std::vector<at::Tensor> parameters = {}, gradients = {}, averages = {}, squares = {}, maxima = {};
};

/// The numbers of a step; a tensor of the device, if it is defined, replaces the number of the host, or joins
/// them: see kernels/cuda/adam.cu.
struct AdamNumbers {
  double rate = 0, step = 0, beta1 = 0, beta2 = 0, weight_decay = 0, eps = 0;
  at::Tensor rate_there = {}, step_there = {}, left_out = {}, found_inf = {}, factor = {};
};

/// A kernel of our own for steps of these tensors: one launch for all instead of LibTorch's nine for a GPT-2,
/// with the same bits. Null if it cannot be used: the tensors must be float32 and on a GPU, with one layout
/// for a parameter and what belongs to it; and the kernel must have proven itself on this GPU, see
/// kernels::is_proven(). `is_decoupled`: AdamW instead of Adam.
const kernels::CudaKernel* find_flat_adam(const AdamLists& lists, bool is_decoupled, bool maximizes);

/// One step of all tensors of the lists.
void step_flat_adam(const kernels::CudaKernel& kernel, const AdamLists& lists, const AdamNumbers& numbers);

}  // namespace lockstep::optim
