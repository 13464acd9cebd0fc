#pragma once

#include <string>
#include <vector>

#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/parallel/module_tensors.hpp"

namespace torch::optim {
class Optimizer;
}

namespace lockstep {

/// What an optimizer knows beside the parameters, without a pickle.
struct OptimizerState {
  /// "state.<parameter>.<name>", as in PyTorch's flattened state dictionaries: "state.conv1.weight.exp_avg".
  /// The names are those of torch.optim in Python; a count of steps is an int64 scalar, `step`. A parameter
  /// that had no gradient yet has no tensors.
  TensorMap tensors;
  /// JSON: the optimizer's class, and for each group its options and the names of its parameters.
  std::string options;
};

/// The state of a torch::optim SGD, Adam, AdamW, RMSprop or Adagrad. `names` gives its parameters their names
/// (the first one counts); one that is not in it is called "group<g>.param<i>". The tensors are handles on
/// the optimizer's own. *Local*. Throws UsageError for another class of optimizer.
OptimizerState optimizer_state(const torch::optim::Optimizer& optimizer,
                               const std::vector<NamedTensor>& names);

/// The optimizer's parameters under the names that its state uses. *Local*.
std::vector<NamedTensor> optimizer_parameters(const torch::optim::Optimizer& optimizer,
                                              const std::vector<NamedTensor>& names);

/// Throws DataError, saying `where`, unless load_optimizer_state would accept the state: the same class of
/// optimizer, the same groups with the same parameters, and for each parameter tensors of its shape, or of
/// that of its namesake in `forms`: what a parameter is whose tensor has only a part of it. *Local*.
void check_optimizer_state(const torch::optim::Optimizer& optimizer, const std::vector<NamedTensor>& names,
                           const OptimizerState& state, const std::string& where,
                           const std::vector<NamedTensor>& forms = {});

/// Replaces the optimizer's state and options, learning rates among them. The values are copied to each
/// parameter's device. *Local*. Throws as check_optimizer_state does; then nothing has changed.
void load_optimizer_state(torch::optim::Optimizer& optimizer, const std::vector<NamedTensor>& names,
                          const OptimizerState& state, const std::string& where);

}  // namespace lockstep
