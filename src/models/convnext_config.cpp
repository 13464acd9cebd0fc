#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "lockstep/core/error.hpp"
#include "lockstep/models/convnext.hpp"
#include "models/attention.hpp"
#include "models/class_labels.hpp"
#include "models/config_file.hpp"
#include "models/model_origin.hpp"

namespace lockstep::models {
namespace {

/// The fields that Lockstep knows, except "architectures".
nlohmann::ordered_json convnext_fields(const ConvNextConfig& config) {
  nlohmann::ordered_json json = {{"depths", config.depths},
                                 {"drop_path_rate", config.drop_path_rate},
                                 {"hidden_act", config.hidden_act},
                                 {"hidden_sizes", config.hidden_sizes},
                                 {"initializer_range", config.initializer_range},
                                 {"layer_norm_eps", config.layer_norm_eps},
                                 {"layer_scale_init_value", config.layer_scale_init_value},
                                 {"model_type", "convnext"},
                                 {"num_channels", config.num_channels},
                                 {"num_stages", config.depths.size()}};
  json["patch_size"] = config.patch_size.height;
  if (config.patch_size.height != config.patch_size.width)
    json["patch_size"] = {config.patch_size.height, config.patch_size.width};
  if (!config.problem_type.empty()) json["problem_type"] = config.problem_type;
  add_class_names(json, config.num_labels, config.id2label);
  return json;
}

}  // namespace

ConvNextConfig ConvNextConfig::from_file(const std::filesystem::path& path) {
  const ConfigFile file(path);
  file.require_type("convnext");
  ConvNextConfig config;
  file.number("num_channels", config.num_channels);
  file.pair("patch_size", config.patch_size.height, config.patch_size.width);
  file.numbers("hidden_sizes", config.hidden_sizes, 1);
  file.numbers("depths", config.depths, 1);
  file.choice("hidden_act", config.hidden_act, kActivations);
  file.real("initializer_range", config.initializer_range, 10);
  file.real("layer_norm_eps", config.layer_norm_eps, 1);
  file.real("layer_scale_init_value", config.layer_scale_init_value, 1e6);
  file.real("drop_path_rate", config.drop_path_rate, 0.999);
  file.labels(config.num_labels, config.id2label);
  file.choice("problem_type", config.problem_type, kProblemTypes);
  auto stages = std::ssize(config.depths);
  std::int64_t named = stages;
  file.number("num_stages", named);
  if (named != stages || std::ssize(config.hidden_sizes) != stages) {
    throw DataError(
        fmt::format("{}: the fields 'num_stages', 'hidden_sizes' and 'depths' are of {}, {} and {} stages, "
                    "expected the same",
                    file.name(), named, config.hidden_sizes.size(), stages));
  }
  config.origin = read_origin(path, convnext_fields(config));
  return config;
}

std::string ConvNextConfig::to_json() const {
  require_said("convnext", {{"problem_type", is_problem_type(problem_type)}});
  return config_text(origin.get(), "ConvNextForImageClassification", convnext_fields(*this));
}

ModelConfig ConvNextConfig::model_config() const {
  return {
      .model_type = "convnext", .num_labels = num_labels, .id2label = id2label, .problem_type = problem_type};
}

}  // namespace lockstep::models
