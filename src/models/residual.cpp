#include "models/residual.hpp"

#include <ATen/ATen.h>

#include <optional>

#include "kernels/add_norm.hpp"
#include "kernels/fused_kernels.hpp"

namespace lockstep::models {
namespace {

kernels::Norm norm_of(torch::nn::LayerNorm& norm) {
  return {.weight = norm->weight, .bias = norm->bias, .epsilon = norm->options.eps()};
}

/// The dtype of the fused kernel that normalizes `states` + `branch`; nothing without one.
std::optional<at::ScalarType> norm_dtype(const at::Tensor& states, const at::Tensor& branch,
                                         torch::nn::LayerNorm& norm) {
  const auto dtype = kernels::fused_dtype(states);
  const bool is_of_rows = norm->options.normalized_shape().size() == 1;
  return dtype && is_of_rows && kernels::takes_add_norm(states, branch, norm_of(norm), *dtype) ? dtype
                                                                                               : std::nullopt;
}

at::Tensor branch_of(const Residual& residual) { return residual.size() > 1 ? residual[1] : at::Tensor(); }

NormedStates normalize_states(const Residual& residual, torch::nn::LayerNorm& norm, bool wants_states) {
  const at::Tensor &states = residual[0], branch = branch_of(residual);
  if (const auto dtype = norm_dtype(states, branch, norm)) {
    const auto results = kernels::add_norm(states, branch, norm_of(norm), *dtype, {.sum = wants_states});
    return {.states = results.sum, .normed = results.narrow};
  }
  const at::Tensor sum = whole_states(residual);
  return {.states = sum, .normed = norm(sum)};
}

NormedStates normalize_states(const Residual& residual, const kernels::RmsNormParameters& norm,
                              const std::function<at::Tensor(const at::Tensor& states)>& compose,
                              bool wants_states) {
  const at::Tensor &states = residual[0], branch = branch_of(residual);
  const auto dtype = kernels::fused_dtype(states);
  if (dtype && kernels::takes_rms_norm(states, branch, norm, *dtype)) {
    const auto results = kernels::add_rms_norm(states, branch, norm, *dtype, wants_states);
    return {.states = results.sum, .normed = results.normed};
  }
  const at::Tensor sum = whole_states(residual);
  return {.states = sum, .normed = compose(sum)};
}

}  // namespace

Residual add_branch(const at::Tensor& states, const at::Tensor& branch) {
  const auto dtype = kernels::fused_dtype(states);
  const bool is_taken = dtype && (states.scalar_type() == at::kFloat || states.scalar_type() == *dtype);
  const bool waits = is_taken && branch.scalar_type() == *dtype && branch.sizes() == states.sizes();
  return waits ? Residual{states, branch} : Residual{states + branch};
}

at::Tensor whole_states(const Residual& residual) {
  return residual.size() == 1 ? residual[0] : residual[0] + residual[1];
}

Residual input_of(const Unit& block, const Residual& residual) {
  return block.activation_checkpointing() ? Residual{whole_states(residual)} : residual;
}

NormedStates normalize(const Residual& residual, torch::nn::LayerNorm& norm) {
  return normalize_states(residual, norm, /*wants_states=*/true);
}

NormedStates normalize(const Residual& residual, const kernels::RmsNormParameters& norm,
                       const std::function<at::Tensor(const at::Tensor& states)>& compose) {
  return normalize_states(residual, norm, compose, /*wants_states=*/true);
}

at::Tensor final_norm(const Residual& residual, torch::nn::LayerNorm& norm) {
  return normalize_states(residual, norm, /*wants_states=*/false).normed;
}

at::Tensor final_norm(const Residual& residual, const kernels::RmsNormParameters& norm,
                      const std::function<at::Tensor(const at::Tensor& states)>& compose) {
  return normalize_states(residual, norm, compose, /*wants_states=*/false).normed;
}

Norms normalize_sum(const at::Tensor& branch, const Norms& states, torch::nn::LayerNorm& norm) {
  if (const auto dtype = norm_dtype(states.front(), branch, norm)) {
    const auto results = kernels::add_norm(states.front(), branch, norm_of(norm), *dtype, {.wide = true});
    return {results.wide, results.narrow};
  }
  return {norm(branch + states.front())};
}

}  // namespace lockstep::models
