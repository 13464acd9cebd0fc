#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.hpp"
#include "lockstep/models/vision_transformer.hpp"
#include "models/attention.hpp"
#include "models/class_labels.hpp"
#include "models/config_file.hpp"
#include "models/model_origin.hpp"

namespace lockstep::models {
namespace {

constexpr const char* kTeacherClass = "DeiTForImageClassificationWithTeacher";

const char* vision_class(const VisionTransformerConfig& config) {
  if (config.model_type == "dinov2") return "Dinov2ForImageClassification";
  if (config.model_type == "vit") return "ViTForImageClassification";
  return config.with_teacher ? kTeacherClass : "DeiTForImageClassification";
}

nlohmann::ordered_json size_field(const ImageSize& size) {
  if (size.height == size.width) return size.height;
  return {size.height, size.width};
}

/// The fields that Lockstep knows, except "architectures".
nlohmann::ordered_json vision_fields(const VisionTransformerConfig& config) {
  nlohmann::ordered_json json = {{"attention_probs_dropout_prob", config.attention_probs_dropout_prob},
                                 {"hidden_act", config.hidden_act},
                                 {"hidden_dropout_prob", config.hidden_dropout_prob},
                                 {"hidden_size", config.hidden_size},
                                 {"image_size", size_field(config.image_size)},
                                 {"initializer_range", config.initializer_range},
                                 {"layer_norm_eps", config.layer_norm_eps},
                                 {"model_type", config.model_type},
                                 {"num_attention_heads", config.num_attention_heads},
                                 {"num_channels", config.num_channels},
                                 {"num_hidden_layers", config.num_hidden_layers},
                                 {"patch_size", size_field(config.patch_size)},
                                 {"qkv_bias", config.qkv_bias}};
  if (config.model_type == "dinov2") {
    json["drop_path_rate"] = config.drop_path_rate;
    json["layerscale_value"] = config.layerscale_value;
    // Python's class wants a whole number.
    const auto whole = static_cast<std::int64_t>(config.mlp_ratio);
    json["mlp_ratio"] = config.mlp_ratio;
    if (static_cast<double>(whole) == config.mlp_ratio) json["mlp_ratio"] = whole;
    json["use_mask_token"] = config.use_mask_token;
    json["use_swiglu_ffn"] = config.use_swiglu_ffn;
  } else {
    json["intermediate_size"] = config.intermediate_size;
  }
  if (!config.problem_type.empty()) json["problem_type"] = config.problem_type;
  add_class_names(json, config.num_labels, config.id2label);
  return json;
}

bool names_teacher(const ModelOrigin& origin) {
  const auto found = origin.config.find("architectures");
  return found != origin.config.end() && found->is_array() &&
         std::find(found->begin(), found->end(), kTeacherClass) != found->end();
}

}  // namespace

VisionTransformerConfig VisionTransformerConfig::of(const std::string& model_type) {
  VisionTransformerConfig config;
  config.model_type = model_type;
  if (model_type == "dinov2") {
    config.layer_norm_eps = 1e-6;
    config.patch_size = {14, 14};
  } else if (model_type != "vit" && model_type != "deit") {
    throw UsageError(fmt::format(
        "there is no vision transformer of model_type '{}'; expected vit, deit or dinov2", model_type));
  }
  return config;
}

VisionTransformerConfig VisionTransformerConfig::from_file(const std::filesystem::path& path) {
  const ConfigFile file(path);
  VisionTransformerConfig config = of(file.model_type({"vit", "deit", "dinov2"}));
  file.number("hidden_size", config.hidden_size);
  file.number("num_hidden_layers", config.num_hidden_layers);
  file.number("num_attention_heads", config.num_attention_heads);
  file.choice("hidden_act", config.hidden_act, kActivations);
  file.real("hidden_dropout_prob", config.hidden_dropout_prob, 1);
  file.real("attention_probs_dropout_prob", config.attention_probs_dropout_prob, 1);
  file.real("initializer_range", config.initializer_range, 10);
  file.real("layer_norm_eps", config.layer_norm_eps, 1);
  file.pair("image_size", config.image_size.height, config.image_size.width);
  file.pair("patch_size", config.patch_size.height, config.patch_size.width);
  file.number("num_channels", config.num_channels);
  file.flag("qkv_bias", config.qkv_bias);
  if (config.model_type == "dinov2") {
    file.real("mlp_ratio", config.mlp_ratio, 1000);
    file.real("layerscale_value", config.layerscale_value, 1e6);
    file.real("drop_path_rate", config.drop_path_rate, 0.999);
    file.flag("use_swiglu_ffn", config.use_swiglu_ffn);
    file.flag("use_mask_token", config.use_mask_token);
  } else {
    file.number("intermediate_size", config.intermediate_size);
  }
  file.labels(config.num_labels, config.id2label);
  file.choice("problem_type", config.problem_type, kProblemTypes);
  file.require_multiple("hidden_size", config.hidden_size, "num_attention_heads", config.num_attention_heads);
  config.origin = read_origin(path, vision_fields(config));
  config.with_teacher = config.model_type == "deit" && names_teacher(*config.origin);
  return config;
}

std::string VisionTransformerConfig::to_json() const {
  require_said(model_type, {{"with_teacher", !with_teacher || model_type == "deit"},
                            {"problem_type", is_problem_type(problem_type)}});
  return config_text(origin.get(), vision_class(*this), vision_fields(*this));
}

ModelConfig VisionTransformerConfig::model_config() const {
  return {
      .model_type = model_type, .num_labels = num_labels, .id2label = id2label, .problem_type = problem_type};
}

}  // namespace lockstep::models
