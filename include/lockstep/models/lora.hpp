#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/models/linear.hpp"
#include "lockstep/models/lora_config.hpp"
#include "lockstep/parallel/module_tensors.hpp"

namespace lockstep::models {

// LoRA (Hu et al., 2021): the model is frozen, and thin matrices beside its linear layers are trained. The
// names, the values and the files are those of PEFT, which reads what is written here, and the reverse.
//
//     auto model = models::AutoModelForCausalLM::from_pretrained(folder, {.dtype = at::kBFloat16});
//     models::add_lora(model, {.r = 16, .lora_alpha = 32, .target_modules = "all-linear"});
//     ...                                                   // DDP, fully_shard(), Accelerator, Trainer
//     models::save_adapter(model, "out");                   // with whole parameters
//
// A model of your own has adapters where it has the linear layers of linear.hpp. Adapters are added to a
// model that is not wrapped yet; under a ShardedInit, after it has been made.

/// The configuration of the model's adapter; null if it has none. *Local*.
std::shared_ptr<const LoraConfig> lora_of(torch::nn::Module& module);

/// Freezes the model and gives the layers that `config` names adapters, which are trained; with them biases
/// and modules, as `config` says. For the same seed the values are those of PEFT's get_peft_model. Returns
/// the configuration with all that it left open. *Local*. Throws UsageError, and changes nothing: for a model
/// that has an adapter, for names that no layer has or that are not linear layers of linear.hpp, and for
/// modules_to_save that share their weights with others. Every name in target_modules and exclude_modules,
/// every key of rank_pattern and alpha_pattern and every number in layers_to_transform must match something:
/// a misspelled one would leave out layers in silence. Only a configuration that came from a file
/// (LoraConfig::file) may name more than the model has, as in PEFT, which writes such files.
std::shared_ptr<const LoraConfig> add_lora(torch::nn::Module& module, LoraConfig config);

/// The trained tensors of an adapter, by their names in adapter_model.safetensors:
/// "base_model.model.layers.0.self_attn.q_proj.lora_A.weight". *Local*. Throws UsageError without an adapter.
std::vector<NamedTensor> adapter_state(torch::nn::Module& module);

/// Writes `folder`/adapter_model.safetensors and adapter_config.json, for PEFT's PeftModel.from_pretrained
/// and for load_adapter(). The parameters must be whole: of a fully sharded model, in full_parameters(). Each
/// file appears complete or not at all, the configuration last. *Local*. Throws UsageError without an adapter
/// and for one whose parameters are sharded, Error if writing fails.
void save_adapter(torch::nn::Module& module, const std::filesystem::path& folder);

/// Gives the model the adapter of a folder that PEFT's save_pretrained or save_adapter() wrote, to be trained
/// further or used. *Local*. Throws DataError for files that are invalid, need what is not implemented, or do
/// not fit the model; UsageError as add_lora().
std::shared_ptr<const LoraConfig> load_adapter(torch::nn::Module& module,
                                               const std::filesystem::path& folder);

/// Adds the products of the adapters to the weights, in float32, and takes the adapters away: the model is as
/// one that never had any, and save_pretrained() writes it whole. It stays frozen. A weight that another
/// layer shares (a head that is tied to the embedding) becomes one of its own, so that the other layer's
/// stays. PEFT's merge_and_unload(). *Local*; before the model is wrapped, or after its training; of a fully
/// sharded model in full_parameters(), on every rank. Throws UsageError without an adapter, for parameters
/// that are sharded, and for the adapter of an embedding that the head is tied to: PEFT would change both.
void merge_lora(torch::nn::Module& module);

/// While it exists, the model answers as without its adapter: the reference model of DPO. PEFT's
/// disable_adapter(). *Local*. Throws UsageError for adapters that train biases or whole modules, whose old
/// values are not kept.
class [[nodiscard]] AdapterOff {
 public:
  explicit AdapterOff(torch::nn::Module& module);
  template <class Model>
  explicit AdapterOff(const torch::nn::ModuleHolder<Model>& model)
      : AdapterOff(static_cast<torch::nn::Module&>(*model.ptr())) {}
  ~AdapterOff();
  AdapterOff(const AdapterOff&) = delete;
  AdapterOff& operator=(const AdapterOff&) = delete;

 private:
  /// Keep the layers alive.
  std::vector<std::shared_ptr<torch::nn::Module>> layers_;
};

// The same for the holders of torch::nn.

template <class Model>
std::shared_ptr<const LoraConfig> lora_of(const torch::nn::ModuleHolder<Model>& model) {
  return lora_of(static_cast<torch::nn::Module&>(*model.ptr()));
}
template <class Model>
std::shared_ptr<const LoraConfig> add_lora(const torch::nn::ModuleHolder<Model>& model, LoraConfig config) {
  return add_lora(static_cast<torch::nn::Module&>(*model.ptr()), std::move(config));
}
template <class Model>
std::vector<NamedTensor> adapter_state(const torch::nn::ModuleHolder<Model>& model) {
  return adapter_state(static_cast<torch::nn::Module&>(*model.ptr()));
}
template <class Model>
void save_adapter(const torch::nn::ModuleHolder<Model>& model, const std::filesystem::path& folder) {
  save_adapter(static_cast<torch::nn::Module&>(*model.ptr()), folder);
}
template <class Model>
std::shared_ptr<const LoraConfig> load_adapter(const torch::nn::ModuleHolder<Model>& model,
                                               const std::filesystem::path& folder) {
  return load_adapter(static_cast<torch::nn::Module&>(*model.ptr()), folder);
}
template <class Model>
void merge_lora(const torch::nn::ModuleHolder<Model>& model) {
  merge_lora(static_cast<torch::nn::Module&>(*model.ptr()));
}

}  // namespace lockstep::models
