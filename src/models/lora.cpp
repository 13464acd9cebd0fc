#include "lockstep/models/lora.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "lockstep/core/error.hpp"
#include "lockstep/models/pretrained_model.hpp"
#include "models/lora_targets.hpp"
#include "models/model_origin.hpp"

namespace lockstep::models {
namespace {

using Module = torch::nn::Module;

struct NamedModule {
  std::string name, kind;
  std::shared_ptr<Module> module;
};

/// All but the model itself, in the order of their registration; one with several names once, as in Python.
std::vector<NamedModule> modules_in(Module& model) {
  std::vector<NamedModule> all;
  std::set<const Module*> known;
  for (const auto& entry : model.named_modules("", /*include_self=*/false)) {
    if (known.insert(entry.value().get()).second)
      all.push_back({entry.key(), parallel::class_of(entry), entry.value()});
  }
  return all;
}

LoraLayer* lora_layer(const std::shared_ptr<Module>& module) {
  return dynamic_cast<LoraLayer*>(module.get());
}

bool is_linear_layer(const std::shared_ptr<Module>& module) {
  const auto* layer = lora_layer(module);
  return layer != nullptr && !layer->is_embedding();
}

std::vector<NamedModule> adapted_layers(Module& model) {
  std::vector<NamedModule> layers = modules_in(model);
  std::erase_if(layers, [](const NamedModule& entry) {
    const auto* layer = lora_layer(entry.module);
    return layer == nullptr || !layer->has_adapter();
  });
  return layers;
}

/// The layers that PEFT chooses for a family.
std::vector<std::string> usual_targets(const PreTrainedModelImpl* model) {
  const std::string type = model != nullptr ? model->model_config().model_type : "";
  if (type == "gpt2") return {"c_attn"};
  for (const char* known : {"bert", "roberta", "xlm-roberta", "electra"})
    if (type == known) return {"query", "value"};
  for (const char* known :
       {"bart", "opt", "llama", "mistral", "gemma", "gemma2", "gemma3_text", "qwen2", "qwen3"})
    if (type == known) return {"q_proj", "v_proj"};
  throw UsageError(
      "add_lora: there are no usual target_modules for this model: name the layers that get an adapter, or "
      "\"all-linear\"");
}

const char* task_of(const PreTrainedModelImpl& model) {
  if (dynamic_cast<const CausalLMImpl*>(&model) != nullptr) return "CAUSAL_LM";
  if (dynamic_cast<const Seq2SeqLMImpl*>(&model) != nullptr) return "SEQ_2_SEQ_LM";
  if (dynamic_cast<const SequenceClassifierImpl*>(&model) != nullptr) return "SEQ_CLS";
  if (dynamic_cast<const TokenClassifierImpl*>(&model) != nullptr) return "TOKEN_CLS";
  return "FEATURE_EXTRACTION";
}

/// Of texts or of tokens.
bool is_classifier(const LoraConfig& config) {
  return config.task_type == "SEQ_CLS" || config.task_type == "TOKEN_CLS";
}

/// What the configuration leaves open.
LoraConfig completed(LoraConfig config, const PreTrainedModelImpl* model) {
  if (config.target_modules.empty()) config.target_modules = usual_targets(model);
  if (model == nullptr) return config;
  if (config.task_type.empty()) config.task_type = task_of(*model);
  if (config.base_model_name_or_path.empty() && model->origin() != nullptr)
    config.base_model_name_or_path =
        std::filesystem::path(model->origin()->generation_file).parent_path().string();
  if (is_classifier(config)) {
    // A new classifier is always trained.
    for (const char* head : {"classifier", "score"}) {
      auto& saved = config.modules_to_save;
      if (std::find(saved.begin(), saved.end(), head) == saved.end()) saved.emplace_back(head);
    }
  }
  return config;
}

bool is_head(const std::string& name) {
  return ends_with_name(name, "lm_head") || ends_with_name(name, "classifier") ||
         ends_with_name(name, "score");
}

/// The last parts of names, each once, for messages.
std::string last_parts(const std::vector<NamedModule>& modules) {
  std::set<std::string> parts;
  for (const auto& entry : modules) {
    if (is_linear_layer(entry.module)) parts.insert(entry.name.substr(entry.name.rfind('.') + 1));
  }
  return parts.empty() ? "none" : fmt::format("{}", fmt::join(parts, ", "));
}

/// Why a module that is named has no adapter.
[[noreturn]] void refuse(const NamedModule& entry) {
  const bool is_linear = entry.module->as<torch::nn::LinearImpl>() != nullptr;
  throw UsageError(
      fmt::format("add_lora: '{}' is a {}: {}", entry.name, entry.kind,
                  is_head(entry.name) && is_linear
                      ? "adapters of heads are not implemented; "
                        "to train all its weights, name it in modules_to_save"
                      : "adapters are for layers of lockstep/models (Linear, Conv1D, Embedding)"));
}

/// Whether it is one of these modules, or a part of one.
bool is_in(const std::vector<NamedModule>& modules, const std::string& name) {
  return std::any_of(modules.begin(), modules.end(), [&](const NamedModule& entry) {
    return name == entry.name || name.starts_with(entry.name + ".");
  });
}

/// `saved`: the modules that are trained whole.
std::vector<NamedModule> targets_of(const std::vector<NamedModule>& modules,
                                    const std::vector<NamedModule>& saved, LoraConfig& config) {
  std::vector<NamedModule> found;
  if (config.target_modules.is_all_linear()) {
    LoraConfig others = config;
    others.target_modules = {};
    const LoraTargets rules(others);
    std::vector<std::string> names;
    for (const auto& entry : modules) {
      const bool is_layer = is_linear_layer(entry.module);
      const bool is_linear = is_layer || entry.module->as<torch::nn::LinearImpl>() != nullptr;
      if (!is_linear || is_head(entry.name) || is_in(saved, entry.name) || rules.exclude(entry.name))
        continue;
      if (!is_layer) refuse(entry);
      names.push_back(entry.name);
    }
    if (!names.empty()) config.target_modules = names;
  }
  const LoraTargets rules(config);
  for (const auto& entry : modules) {
    if (!rules.contain(entry.name)) continue;
    if (is_in(saved, entry.name)) {
      throw UsageError(fmt::format(
          "add_lora: '{}' is in target_modules, and is trained whole by modules_to_save ({}), which "
          "are ends of names: leave it out of one of them, or name it in exclude_modules",
          entry.name, fmt::join(config.modules_to_save, ", ")));
    }
    if (lora_layer(entry.module) == nullptr) refuse(entry);
    found.push_back(entry);
  }
  if (found.empty()) {
    throw UsageError(fmt::format(
        "add_lora: target_modules names no layer of the model: expected some of its linear layers ({})",
        last_parts(modules)));
  }
  const bool is_from_file = !config.file.empty();
  if (is_from_file) return found;
  std::vector<std::string> names;
  for (const auto& entry : modules) names.push_back(entry.name);
  if (const auto unused = rules.find_unused(names))
    throw UsageError(fmt::format("add_lora: {}; the linear layers are {}", *unused, last_parts(modules)));
  return found;
}

/// The modules that are trained whole.
std::vector<NamedModule> saved_modules(const std::vector<NamedModule>& modules, const LoraConfig& config) {
  std::vector<NamedModule> found;
  const bool has_head = std::any_of(modules.begin(), modules.end(), [](const NamedModule& entry) {
    return ends_with_name(entry.name, "lm_head") && entry.module->as<torch::nn::LinearImpl>() != nullptr;
  });
  for (const auto& name : config.modules_to_save) {
    const auto before = found.size();
    for (const auto& entry : modules) {
      // As in PEFT, "norm" means input_layernorm too, and "classifier" DistilBERT's pre_classifier.
      if (!entry.name.ends_with(name)) continue;
      // PEFT trains a copy, beside a head that keeps the old values.
      if (entry.module->as<torch::nn::EmbeddingImpl>() != nullptr && !has_head)
        throw UsageError(
            fmt::format("add_lora: modules_to_save names '{}', whose weights may be those of the "
                        "head as well: training one of two is not implemented",
                        entry.name));
      found.push_back(entry);
    }
    const bool is_usual = is_classifier(config) && (name == "classifier" || name == "score");
    if (found.size() == before && !is_usual)
      throw UsageError(
          fmt::format("add_lora: modules_to_save names '{}', which the model does not have", name));
  }
  return found;
}

void train(const at::Tensor& parameter) {
  if (parameter.is_floating_point()) parameter.requires_grad_(true);
}

/// The parameters whose training the field "bias" adds, by name.
std::vector<NamedTensor> trained_biases(Module& model, const LoraConfig& config) {
  std::vector<NamedTensor> found;
  if (config.bias == "none") return found;
  std::set<std::string> layers;
  for (const auto& entry : adapted_layers(model)) layers.insert(entry.name + ".bias");
  for (auto& entry : parallel::named_parameters_of(model)) {
    if (entry.name != "bias" && !entry.name.ends_with(".bias")) continue;
    const bool is_of_layer = layers.contains(entry.name);
    if (config.bias == "lora_only" && !is_of_layer) continue;
    // PEFT's name of the layer itself, beside its adapter.
    if (is_of_layer) entry.name.insert(entry.name.size() - std::string("bias").size(), "base_layer.");
    found.push_back(std::move(entry));
  }
  return found;
}

/// Whether the adapter's file has the table itself as well: PEFT's rule, by the names of target_modules.
bool has_table_in_file(const LoraConfig& config, const std::string& layer) {
  const auto& names = config.target_modules.names();
  const bool is_named = std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return name == "embed_tokens" || name == "lm_head";
  });
  const bool is_pattern = !config.target_modules.pattern().empty();
  return is_named || (is_pattern && ends_with_name(layer, "embed_tokens"));
}

/// Whether the module is a language model whose head has this weight.
bool has_head_of(const Module& module, const void* weight) {
  const auto* causal = dynamic_cast<const CausalLMImpl*>(&module);
  const auto* masked = dynamic_cast<const MaskedLMImpl*>(&module);
  const auto* seq2seq = dynamic_cast<const Seq2SeqLMImpl*>(&module);
  const auto has = [&](const auto* model) {
    return model != nullptr && model->head().weight.unsafeGetTensorImpl() == weight;
  };
  return has(causal) || has(masked) || has(seq2seq);
}

/// Throws if another part of the model, or of a model in it, computes with the table as well, as a head that
/// is tied to it.
void check_table_is_alone(Module& model, const NamedModule& entry) {
  const void* table = lora_layer(entry.module)->weight_implementation();
  const auto parts = modules_in(model);
  const bool is_in_part = std::any_of(
      parts.begin(), parts.end(), [&](const NamedModule& part) { return has_head_of(*part.module, table); });
  if (!is_in_part && !has_head_of(model, table)) return;
  throw UsageError(
      fmt::format("merge_lora: the head shares the weights of '{}', and merging its adapter would change the "
                  "head as well: "
                  "use the model with its adapter",
                  entry.name));
}

}  // namespace

std::shared_ptr<const LoraConfig> lora_of(Module& module) {
  const auto layers = adapted_layers(module);
  return layers.empty() ? nullptr : lora_layer(layers.front().module)->lora_config();
}

std::shared_ptr<const LoraConfig> add_lora(Module& module, LoraConfig given) {
  if (lora_of(module) != nullptr)
    throw UsageError("add_lora: the model has an adapter already: merge_lora() joins it with the weights");
  LoraConfig config = completed(std::move(given), dynamic_cast<PreTrainedModelImpl*>(&module));
  const auto modules = modules_in(module);
  const auto saved = saved_modules(modules, config);
  const auto targets = targets_of(modules, saved, config);
  config.fan_in_fan_out = std::any_of(targets.begin(), targets.end(), [](const NamedModule& entry) {
    return is_linear_layer(entry.module) && lora_layer(entry.module)->has_turned_weight();
  });
  const LoraTargets rules(config);
  const auto shared = std::make_shared<const LoraConfig>(std::move(config));
  for (const auto& parameter : parallel::parameters_of(module)) parameter.requires_grad_(false);
  for (const auto& entry : targets) {
    lora_layer(entry.module)
        ->add_adapter({.r = rules.rank_of(entry.name),
                       .scaling = rules.scaling_of(entry.name),
                       .dropout = shared->lora_dropout,
                       .init = shared->init_lora_weights},
                      shared);
  }
  for (const auto& entry : trained_biases(module, *shared)) train(entry.tensor);
  for (const auto& entry : saved)
    for (const auto& parameter : entry.module->parameters()) train(parameter);
  return shared;
}

std::vector<NamedTensor> adapter_state(Module& module) {
  const auto config = lora_of(module);
  if (config == nullptr) throw UsageError("the model has no adapter: add_lora() gives it one");
  std::vector<NamedTensor> state;
  std::set<const void*> known;
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    if (known.insert(tensor.unsafeGetTensorImpl()).second) state.push_back({kAdapterPrefix + name, tensor});
  };
  for (const auto& entry : adapted_layers(module)) {
    for (const auto& part : parallel::named_parameters_of(*entry.module)) {
      if (part.name.starts_with("lora_")) add(entry.name + "." + part.name, part.tensor);
      const bool is_table = lora_layer(entry.module)->is_embedding() && part.name == "weight";
      if (is_table && has_table_in_file(*config, entry.name))
        add(entry.name + ".base_layer.weight", part.tensor);
    }
  }
  for (const auto& entry : saved_modules(modules_in(module), *config)) {
    for (const auto& part : parallel::named_state_of(*entry.module))
      add(entry.name + "." + part.name, part.tensor);
  }
  for (const auto& entry : trained_biases(module, *config)) add(entry.name, entry.tensor);
  return state;
}

void merge_lora(Module& module) {
  const auto layers = adapted_layers(module);
  if (layers.empty()) throw UsageError("merge_lora: the model has no adapter");
  for (const auto& entry : layers) {
    if (!lora_layer(entry.module)->is_whole())
      throw UsageError(
          "merge_lora: the parameters are sharded, and this rank has a part of them: call it in "
          "full_parameters()");
    if (lora_layer(entry.module)->is_embedding()) check_table_is_alone(module, entry);
  }
  // Another layer that has the same weight, such as the embedding of a tied head, keeps its own.
  std::map<const void*, std::set<const Module*>> users;
  const auto add = [&](const Module& part) {
    for (const auto& parameter : part.parameters(/*recurse=*/false))
      users[parameter.unsafeGetTensorImpl()].insert(&part);
  };
  add(module);
  for (const auto& part : modules_in(module)) add(*part.module);
  for (const auto& entry : layers) {
    auto* layer = lora_layer(entry.module);
    auto others = users[layer->weight_implementation()];
    others.erase(entry.module.get());
    layer->merge_adapter(/*is_shared=*/!others.empty());
  }
}

AdapterOff::AdapterOff(Module& module) {
  const auto config = lora_of(module);
  if (config != nullptr && (config->bias != "none" || !saved_modules(modules_in(module), *config).empty())) {
    throw UsageError(
        "AdapterOff: the adapter trains biases or whole modules (modules_to_save), whose old values are not "
        "kept: load the model a second time");
  }
  for (const auto& entry : adapted_layers(module)) {
    auto* layer = lora_layer(entry.module);
    if (!layer->is_adapter_on()) continue;
    layer->set_adapter_on(false);
    layers_.push_back(entry.module);
  }
}

AdapterOff::~AdapterOff() {
  for (const auto& module : layers_) lora_layer(module)->set_adapter_on(true);
}

}  // namespace lockstep::models
