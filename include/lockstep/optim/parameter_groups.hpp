#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/optim/fused_optimizer.hpp"
#include "lockstep/parallel/module_tensors.hpp"

namespace lockstep::optim {

/// Whether weight decay applies to a parameter of this name: not to biases and the weights of normalization
/// layers. The names are those of transformers' Trainer: "bias", "layernorm" or "rmsnorm" anywhere, and
/// "norm" or "..._norm" as a part between dots, case-insensitive.
bool takes_weight_decay(std::string_view name);

/// The names of the module's submodules whose class is LayerNorm, with a trailing dot: see
/// parallel::children_of_class(). *Local*.
template <class Module>
std::vector<std::string> layer_norms_of(Module& module) {
  auto names = parallel::children_of_class(module, "LayerNorm");
  for (auto& name : names) name += '.';
  return names;
}

/// The trained parameters, each once, in two groups with the same options except for weight decay: the first
/// has that of `options`; the second, with biases and norms by the rules of transformers' Trainer, has none.
/// An empty group is left out.
///
///     lockstep::optim::AdamW optimizer(
///         lockstep::optim::parameter_groups(model, lockstep::optim::AdamWOptions{.lr = 5e-5}));
template <class Module, class Options>
std::vector<ParameterGroup<Options>> parameter_groups(Module& module, const Options& options) {
  ParameterGroup<Options> with{{}, options};
  ParameterGroup<Options> without{{}, options};
  without.options.weight_decay = 0;
  const auto norms = layer_norms_of(module);
  std::vector<const void*> seen;
  for (const auto& entry : parallel::named_parameters_of(module)) {
    const void* identity = entry.tensor.unsafeGetTensorImpl();
    if (!entry.tensor.requires_grad() || std::find(seen.begin(), seen.end(), identity) != seen.end())
      continue;
    seen.push_back(identity);
    const bool in_norm = std::any_of(norms.begin(), norms.end(),
                                     [&](const std::string& norm) { return entry.name.starts_with(norm); });
    (takes_weight_decay(entry.name) && !in_norm ? with : without).parameters.push_back(entry.tensor);
  }
  std::vector<ParameterGroup<Options>> groups;
  for (auto* group : {&with, &without}) {
    if (!group->parameters.empty()) groups.push_back(std::move(*group));
  }
  return groups;
}

}  // namespace lockstep::optim
