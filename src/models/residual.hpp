#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/normalization.h>

#include <functional>
#include <vector>

#include "kernels/rms_norm.hpp"
#include "lockstep/parallel/unit.hpp"

namespace lockstep::models {

/// What goes from layer to layer of a model that normalizes first: the states, or, with fused kernels, states
/// and a branch to be added to them, which the next normalization does.
using Residual = std::vector<at::Tensor>;

/// `states` with `branch`, which is added now unless a fused kernel will.
Residual add_branch(const at::Tensor& states, const at::Tensor& branch);

/// The states with the branch.
at::Tensor whole_states(const Residual& residual);

/// What a block gets. With activation checkpointing it is the sum: a checkpoint keeps what a block gets, and
/// one tensor takes less memory than two.
Residual input_of(const Unit& block, const Residual& residual);

struct NormedStates {
  at::Tensor states;
  /// With fused kernels in float16 or bfloat16.
  at::Tensor normed;
};

/// The states with the branch, and their norm.
NormedStates normalize(const Residual& residual, torch::nn::LayerNorm& norm);

/// The same with a root mean square norm; `compose` makes the norm of LibTorch's operations.
NormedStates normalize(const Residual& residual, const kernels::RmsNormParameters& norm,
                       const std::function<at::Tensor(const at::Tensor& states)>& compose);

/// The norm of the states with the branch, which themselves nothing else reads: that behind the last layer.
at::Tensor final_norm(const Residual& residual, torch::nn::LayerNorm& norm);
at::Tensor final_norm(const Residual& residual, const kernels::RmsNormParameters& norm,
                      const std::function<at::Tensor(const at::Tensor& states)>& compose);

/// What goes from layer to layer of a model that normalizes last: norms, and, with fused kernels, the same in
/// float16 or bfloat16 for products. The first and the last element are these two.
using Norms = std::vector<at::Tensor>;

/// The norm of `branch` + `states`.
Norms normalize_sum(const at::Tensor& branch, const Norms& states, torch::nn::LayerNorm& norm);

}  // namespace lockstep::models
