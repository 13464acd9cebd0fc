#include "models/nf4_load.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "lockstep/core/error.hpp"
#include "models/weights_dtype.hpp"
#include "train/model_content.hpp"

namespace lockstep::models {
namespace {

namespace fs = std::filesystem;

constexpr const char* kQuantState = ".quant_state.bitsandbytes__nf4";

/// The file's name of a tensor, which may have or lack the prefix of the body.
std::string name_in_file(const TensorSource& source, const std::string& name, const std::string& prefix) {
  if (prefix.empty() || source.forms.contains(name)) return name;
  return name.starts_with(prefix) ? name.substr(prefix.size()) : prefix + name;
}

}  // namespace

std::optional<Nf4Options> nf4_of_config(const ConfigFile& config) {
  const auto fields = config.section("quantization_config");
  if (!fields) return std::nullopt;
  std::string method = "none", type = "fp4", storage = "uint8", compute = "float32";
  fields->text("quant_method", method);
  if (method != "bitsandbytes")
    config.fail("quantization_config",
                "nf4 of bitsandbytes: other kinds of quantized weights are not implemented");
  bool in_4_bits = false;
  fields->flag("load_in_4bit", in_4_bits);
  fields->text("bnb_4bit_quant_type", type);
  if (!in_4_bits || type != "nf4")
    config.fail("quantization_config",
                "load_in_4bit and bnb_4bit_quant_type \"nf4\": others are not implemented");
  fields->choice("bnb_4bit_quant_storage", storage, {"uint8"});
  fields->choice("bnb_4bit_compute_dtype", compute, {"float32", "bfloat16", "float16"});
  if (fields->has("llm_int8_skip_modules")) {
    std::vector<std::string> skipped;
    fields->choices("llm_int8_skip_modules", skipped, {"lm_head"});
  }
  Nf4Options options{.double_quant = false, .compute_dtype = python_dtype(compute)};
  fields->flag("bnb_4bit_use_double_quant", options.double_quant);
  return options;
}

nlohmann::ordered_json nf4_config_fields(const Nf4Options& options) {
  const auto compute = options.compute_dtype.value_or(at::kFloat);
  const char* name = compute == at::kBFloat16 ? "bfloat16" : compute == at::kHalf ? "float16" : "float32";
  return {{"_load_in_4bit", true},
          {"_load_in_8bit", false},
          {"bnb_4bit_compute_dtype", name},
          {"bnb_4bit_quant_storage", "uint8"},
          {"bnb_4bit_quant_type", "nf4"},
          {"bnb_4bit_use_double_quant", options.double_quant},
          {"llm_int8_enable_fp32_cpu_offload", false},
          {"llm_int8_has_fp16_weight", false},
          {"llm_int8_skip_modules", nullptr},
          {"llm_int8_threshold", 6.0},
          {"load_in_4bit", true},
          {"load_in_8bit", false},
          {"quant_method", "bitsandbytes"}};
}

Nf4Loading::Nf4Loading(torch::nn::Module& model, const fs::path& folder)
    : folder_(folder), layers_(nf4_layers(model)) {
  if (!layers_.empty()) is_in_files_ = nf4_of_config(ConfigFile(folder)).has_value();
}

void Nf4Loading::expect(std::vector<NamedTensor>& tensors, PretrainedNames& names) const {
  if (layers_.empty()) return;
  if (is_in_files_) {
    names.constants.emplace_back(kQuantState);
    return;
  }
  std::set<std::string> weights;
  for (const auto& [name, layer] : layers_) weights.insert(name + ".weight");
  std::erase_if(tensors, [&](const NamedTensor& entry) {
    const auto end = entry.name.find(".weight.");
    return end != std::string::npos && weights.contains(entry.name.substr(0, end + 7));
  });
  // Forms of the files' tensors, which finish() reads.
  for (const auto& [name, layer] : layers_) {
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [&](const NamedTensor& entry) { return entry.name == name + ".weight"; });
    found->tensor = at::empty({layer->options.out_features(), layer->options.in_features()},
                              at::TensorOptions(at::kMeta).dtype(at::kFloat));
  }
}

void Nf4Loading::finish(const PretrainedNames& names) const {
  if (layers_.empty()) return;
  const TensorSource source = open_model_file(model_file_of(folder_));
  const auto read = [&](const std::string& name) {
    return source.get_tensor(name_in_file(source, name, names.base_prefix));
  };
  for (const auto& [name, layer] : layers_) {
    const auto state = nf4_state(*layer);
    if (is_in_files_) {
      state->read_text(read(name + ".weight" + kQuantState), name);
    } else {
      set_nf4(*layer,
              read(name + ".weight").to(layer->weight.device(), state->weight_of(layer->weight).dtype));
    }
  }
}

}  // namespace lockstep::models
