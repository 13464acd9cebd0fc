#pragma once

#include <string>
#include <vector>

#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/parallel/module_tensors.hpp"

namespace torch::optim {
class Optimizer;
}

namespace lockstep {

/// The state and options of an optimizer, without pickle.
struct OptimizerState {
  /// "state.<parameter>.<name>", as in PyTorch's flattened state dictionaries: "state.conv1.weight.exp_avg".
  /// The names are those of torch.optim in Python; a step count is an int64 scalar, `step`. A parameter that
  /// has not had a gradient yet has no tensors.
  TensorMap tensors;
  /// JSON: the optimizer's class, and the options and parameter names of each group.
  std::string options;
};

/// The state of a torch::optim SGD, Adam, AdamW, RMSprop or Adagrad, or of Lockstep's SGD, Adam or AdamW.
/// `names` names the parameters (the first name counts); one without a name is called "group<g>.param<i>".
/// The tensors are handles to the optimizer's own. *Local*. Throws UsageError for other classes of
/// optimizers.
OptimizerState optimizer_state(const torch::optim::Optimizer& optimizer,
                               const std::vector<NamedTensor>& names);

/// The optimizer's parameters, with the names that its state uses. *Local*.
std::vector<NamedTensor> optimizer_parameters(const torch::optim::Optimizer& optimizer,
                                              const std::vector<NamedTensor>& names);

/// Throws DataError, with `where` in its text, unless load_optimizer_state would accept the state: the same
/// class of optimizer, the same groups with the same parameters, and tensors of each parameter's shape.
/// `forms` gives the unsharded shapes, by name, of parameters whose tensors are only a part. *Local*.
void check_optimizer_state(const torch::optim::Optimizer& optimizer, const std::vector<NamedTensor>& names,
                           const OptimizerState& state, const std::string& where,
                           const std::vector<NamedTensor>& forms = {});

/// Replaces the optimizer's state and options, including learning rates. The values are copied to each
/// parameter's device. *Local*. Throws as check_optimizer_state does; then nothing has changed.
void load_optimizer_state(torch::optim::Optimizer& optimizer, const std::vector<NamedTensor>& names,
                          const OptimizerState& state, const std::string& where);

}  // namespace lockstep
