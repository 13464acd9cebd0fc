#include <filesystem>
#include <utility>

#include "core/file_system.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/models/lora.hpp"
#include "lockstep/models/pretrained.hpp"
#include "lockstep/train/model_files.hpp"

namespace lockstep::models {
namespace {

namespace fs = std::filesystem;

std::vector<LoraLayer*> layers_with_adapters(torch::nn::Module& module) {
  std::vector<LoraLayer*> layers;
  for (const auto& child : module.modules(/*include_self=*/false)) {
    auto* layer = dynamic_cast<LoraLayer*>(child.get());
    if (layer != nullptr && layer->has_adapter()) layers.push_back(layer);
  }
  return layers;
}

/// What add_lora() changes, to be undone unless it is kept.
class AdapterAttempt {
 public:
  explicit AdapterAttempt(torch::nn::Module& module) : module_(&module) {
    for (auto& parameter : module.parameters()) trained_.emplace_back(parameter, parameter.requires_grad());
  }
  ~AdapterAttempt() {
    if (module_ == nullptr) return;
    for (auto* layer : layers_with_adapters(*module_)) layer->remove_adapter();
    for (const auto& [parameter, is_trained] : trained_) parameter.requires_grad_(is_trained);
  }
  AdapterAttempt(const AdapterAttempt&) = delete;
  AdapterAttempt& operator=(const AdapterAttempt&) = delete;

  void keep() { module_ = nullptr; }

 private:
  torch::nn::Module* module_;
  std::vector<std::pair<at::Tensor, bool>> trained_;
};

}  // namespace

void save_adapter(torch::nn::Module& module, const fs::path& folder) {
  const auto state = adapter_state(module);
  for (const auto* layer : layers_with_adapters(module)) {
    if (!layer->is_adapter_whole())
      throw UsageError(
          "save_adapter: the parameters are sharded, and this rank has a part of them: call it in "
          "full_parameters()");
  }
  file_system::make_folders(folder);
  write_model_file(folder / kAdapterFileName, state);
  write_atomically(folder / kAdapterConfigFileName, lora_of(module)->to_json());
}

std::shared_ptr<const LoraConfig> load_adapter(torch::nn::Module& module, const fs::path& folder) {
  LoraConfig config = LoraConfig::from_file(folder);
  if (lora_of(module) != nullptr)
    throw UsageError(
        "load_adapter: the model has an adapter already: merge_lora() joins it with the weights");
  AdapterAttempt attempt(module);
  auto result = add_lora(module, std::move(config));
  const fs::path pickle = folder / "adapter_model.bin";
  const bool is_old = !fs::exists(folder / kAdapterFileName) && fs::exists(pickle);
  load_pretrained(is_old ? pickle : folder / kAdapterFileName, adapter_state(module));
  attempt.keep();
  return result;
}

}  // namespace lockstep::models
