#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/optim/fused_optimizer.hpp"
#include "lockstep/parallel/module_tensors.hpp"

namespace lockstep::optim {

/// Whether weight decay is meant for a parameter of this name: not for biases and not for the weights of
/// normalisation layers. The names are those that transformers' Trainer knows: "bias", "layernorm", "rmsnorm"
/// anywhere, and "norm" or "..._norm" as a part between dots, in small or capital letters.
bool takes_weight_decay(std::string_view name);

/// The names of the module's children that are layer norms by their class, with a dot at the end: see
/// parallel::children_of_class(). *Local*.
template <class Module>
std::vector<std::string> layer_norms_of(Module& module) {
  auto names = parallel::children_of_class(module, "LayerNorm");
  for (auto& name : names) name += '.';
  return names;
}

/// The parameters that are trained, each once, as two groups with the same options but the weight decay: that
/// of `options` for the first, none for the second, which holds biases and norms as transformers' Trainer
/// tells them. A group without parameters is left out.
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
