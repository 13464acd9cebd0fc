#include <ATen/ATen.h>
#include <fmt/format.h>

#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/file_system.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/models/lora.hpp"
#include "lockstep/models/pretrained.hpp"
#include "lockstep/models/pretrained_model.hpp"
#include "lockstep/parallel/module_tensors.hpp"
#include "lockstep/train/model_files.hpp"
#include "train/model_content.hpp"

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

/// The model's tensor of that name; undefined if there is none. A head that is tied has the embedding's.
at::Tensor own_tensor(torch::nn::Module& module, const std::string& name) {
  for (const auto& entry : parallel::named_parameters_of(module))
    if (entry.name == name) return entry.tensor;
  const auto* const model = dynamic_cast<const CausalLMImpl*>(&module);
  return model != nullptr && name == "lm_head.weight" ? model->head().weight : at::Tensor();
}

/// As far as the shorter of their dtypes tells: a file of bfloat16 beside a model in float32, or the other
/// way.
bool have_same_values(const at::Tensor& one, const at::Tensor& other) {
  const auto dtype = one.element_size() < other.element_size() ? one.scalar_type() : other.scalar_type();
  return at::equal(one.to(dtype), other.to(dtype));
}

/// Names in the file of weights that the model has itself, of embeddings and heads: PEFT writes them beside
/// the adapter if it is asked to (save_embedding_layers), and after resize_token_embeddings(). Other values
/// would be lost when the adapter is saved again.
std::vector<std::string> own_weights_in(const fs::path& file, torch::nn::Module& module,
                                        const std::vector<NamedTensor>& state) {
  std::set<std::string> known;
  for (const auto& entry : state) known.insert(entry.name);
  std::vector<std::string> names;
  const TensorSource source = open_model_file(file);
  for (const auto& [name, form] : source.forms) {
    if (known.contains(name) || !name.starts_with(kAdapterPrefix)) continue;
    const at::Tensor own = own_tensor(module, name.substr(std::string(kAdapterPrefix).size()));
    if (!own.defined()) continue;
    if (own.sizes() != form.sizes() || !have_same_values(source.get_tensor(name), own.detach().cpu())) {
      throw DataError(fmt::format(
          "{}: '{}' {} are weights of the model itself, which are {} and not the same here: PEFT writes them "
          "for embeddings that were resized or trained. Let PEFT make one model of both "
          "(merge_and_unload, save_pretrained), or give the adapter the base that it was trained with",
          file.string(), name, c10::str(form.sizes()), c10::str(own.sizes())));
    }
    names.push_back(name);
  }
  return names;
}

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
  const fs::path file = is_old ? pickle : folder / kAdapterFileName;
  const auto state = adapter_state(module);
  load_pretrained(file, state, {.constants = own_weights_in(file, module, state)});
  attempt.keep();
  return result;
}

}  // namespace lockstep::models
