#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "lockstep/parallel/module_tensors.hpp"

namespace torch::nn {
class Module;
}

namespace lockstep::parallel {

/// A model's adapter as it is in files: what is trained of a model whose other weights stay as they are.
struct AdapterForm {
  /// Its tensors by their names in the file. They are the model's own, not copies.
  std::vector<NamedTensor> tensors;
  /// What the names of the model's other tensors begin with if they are in that file too.
  std::string prefix;
  /// The text of its configuration.
  std::string config;
  /// Which model it belongs to, for people: a folder.
  std::string base;
};

/// File names of an adapter: PEFT's.
constexpr const char* kAdapterFile = "adapter_model.safetensors";
constexpr const char* kAdapterConfigFile = "adapter_config.json";

/// A layer to which an adapter can be added. By it, checkpoints and save_model() know that of a model only
/// the adapter is to be saved.
class AdapterLayer {
 public:
  virtual ~AdapterLayer() = default;
  virtual bool has_adapter() const noexcept = 0;
  /// The adapter of the whole model `model`, which contains the layer. Throws UsageError without one.
  virtual AdapterForm adapter_form(torch::nn::Module& model) const = 0;
};

/// The adapter of a model, if it has one. *Local*.
template <class Module>
std::optional<AdapterForm> adapter_of(Module& module) {
  auto& model = module_of(module);
  if constexpr (requires { model.modules(false).front()->named_children(); }) {
    for (const auto& child : model.modules(/*include_self=*/false)) {
      const auto* const layer = dynamic_cast<const AdapterLayer*>(child.get());
      if (layer == nullptr || !layer->has_adapter()) continue;
      // The tensors of a const model can be written to as well.
      return layer->adapter_form(
          const_cast<std::remove_const_t<std::remove_reference_t<decltype(model)>>&>(model));
    }
  }
  return std::nullopt;
}

}  // namespace lockstep::parallel
