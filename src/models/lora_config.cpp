#include "lockstep/models/lora_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/json.hpp"
#include "core/json_text.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::models {
namespace {

using Json = nlohmann::ordered_json;

/// Settings of PEFT that are not implemented; neutral are null, false and what is empty.
constexpr const char* kOtherLoraSettings[] = {
    "alora_invocation_tokens", "arrow_config",    "corda_config",
    "ensure_weight_tying",     "eva_config",      "kasa_config",
    "layer_replication",       "loftq_config",    "lora_bias",
    "lora_ga_config",          "megatron_config", "monteclora_config",
    "target_parameters",       "use_bdlora",      "use_dora",
    "trainable_token_indices", "use_qalora",      "velora_config"};

/// What PEFT 0.21 writes for a new adapter besides the fields of LoraConfig.
Json neutral_fields() {
  Json fields = {{"auto_mapping", nullptr}, {"inference_mode", true},  {"megatron_core", "megatron.core"},
                 {"peft_type", "LORA"},     {"qalora_group_size", 16}, {"revision", nullptr}};
  for (const char* field : kOtherLoraSettings) {
    const std::string name = field;
    const bool is_flag = name.starts_with("use_") || name == "lora_bias" || name == "ensure_weight_tying";
    fields[name] = is_flag && name != "use_bdlora" ? Json(false) : Json();
  }
  fields["loftq_config"] = Json::object();
  return fields;
}

/// Reads the fields of a file.
class LoraFields {
 public:
  LoraFields(std::string file, Json json) : file_(std::move(file)), json_(std::move(json)) {
    if (!json_.is_object())
      throw DataError(file_ + " is not the configuration of an adapter: expected a JSON object");
  }

  const Json& json() const { return json_; }

  /// Null if there is no such field, or null in it.
  const Json* find(const char* field) const {
    const auto found = json_.find(field);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }

  [[noreturn]] void fail(const char* field, const std::string& expected) const {
    throw DataError(fmt::format("{}: the field '{}' is {}, expected {}", file_, field,
                                json_text(json_.at(field)), expected));
  }

  void number(const char* field, std::int64_t& value) const {
    const auto* found = find(field);
    if (found == nullptr) return;
    if (!is_rank(*found)) fail(field, "an integer above 0");
    value = found->get<std::int64_t>();
  }

  void real(const char* field, double& value, double most) const {
    const auto* found = find(field);
    if (found == nullptr) return;
    if (!is_number(*found, most)) fail(field, fmt::format("a number from 0 to {}", most));
    value = found->get<double>();
  }

  void flag(const char* field, bool& value) const {
    const auto* found = find(field);
    if (found == nullptr) return;
    if (!found->is_boolean()) fail(field, "true or false");
    value = found->get<bool>();
  }

  void text(const char* field, std::string& value) const {
    const auto* found = find(field);
    if (found == nullptr) return;
    if (!found->is_string()) fail(field, "a text");
    value = found->get<std::string>();
  }

  void texts(const char* field, std::vector<std::string>& value) const {
    const auto* found = find(field);
    if (found == nullptr) return;
    if (!are_texts(*found)) fail(field, "a list of names");
    value = found->get<std::vector<std::string>>();
  }

  void modules(const char* field, ModuleNames& value) const {
    const auto* found = find(field);
    if (found == nullptr) return;
    if (found->is_string()) {
      value = ModuleNames(found->get<std::string>());
    } else if (are_texts(*found)) {
      value = ModuleNames(found->get<std::vector<std::string>>());
    } else {
      fail(field, "a list of names or a regular expression");
    }
  }

  /// One layer, or a list.
  void layers(const char* field, std::optional<std::vector<std::int64_t>>& value) const {
    const auto* found = find(field);
    if (found == nullptr) return;
    const Json list = found->is_array() ? *found : Json::array({*found});
    const bool are_layers = std::all_of(list.begin(), list.end(), [](const Json& layer) {
      return layer.is_number_integer() && layer >= 0 && layer < kMost;
    });
    if (!are_layers) fail(field, "the number of a layer, or a list of such");
    if (!list.empty()) value = list.get<std::vector<std::int64_t>>();
  }

  template <class Value>
  void pattern(const char* field, std::vector<std::pair<std::string, Value>>& values) const {
    const auto* found = find(field);
    if (found == nullptr) return;
    if (!found->is_object()) fail(field, "an object of numbers by names of layers");
    for (const auto& [name, value] : found->items()) {
      const bool is_value = std::is_integral_v<Value> ? is_rank(value) : is_number(value, kMost);
      if (!is_value) fail(field, "numbers above 0, by names of layers");
      values.emplace_back(name, value.template get<Value>());
    }
  }

  void init(const char* field, LoraInit& value) const {
    const auto* found = find(field);
    if (found == nullptr || *found == true) return;
    if (*found == false) {
      value = LoraInit::both_random;
    } else if (*found == "gaussian") {
      value = LoraInit::gaussian;
    } else {
      fail(field, "true, false or \"gaussian\": the other is not implemented");
    }
  }

  void require_neutral(const char* field) const {
    const auto* found = find(field);
    if (found == nullptr || *found == false ||
        ((found->is_structured() || found->is_string()) && found->empty()))
      return;
    fail(field, "none: adapters of this kind are not implemented");
  }

 private:
  static constexpr std::int64_t kMost = std::int64_t{1} << 31;

  static bool is_rank(const Json& json) { return json.is_number_integer() && json > 0 && json < kMost; }
  static bool is_number(const Json& json, double most) {
    return json.is_number() && json.get<double>() >= 0 && json.get<double>() <= most;
  }
  static bool are_texts(const Json& json) {
    return json.is_array() &&
           std::all_of(json.begin(), json.end(), [](const Json& name) { return name.is_string(); });
  }

  std::string file_;
  Json json_;
};

/// With its names in order; the patterns' order counts.
Json sorted_fields(const Json& fields) {
  std::vector<std::string> names;
  for (const auto& entry : fields.items()) names.push_back(entry.key());
  std::sort(names.begin(), names.end());
  Json sorted = Json::object();
  for (const auto& name : names) sorted[name] = fields[name];
  return sorted;
}

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }
Json list_or_null(const std::vector<std::string>& list) { return list.empty() ? Json() : Json(list); }

Json modules_json(const ModuleNames& modules) {
  return modules.pattern().empty() ? list_or_null(modules.names()) : Json(modules.pattern());
}

/// Numbers without a fraction as integers, as Python has them.
Json number_json(double value) {
  const auto whole = static_cast<std::int64_t>(value);
  return static_cast<double>(whole) == value ? Json(whole) : Json(value);
}

Json known_lora_fields(const LoraConfig& config) {
  Json alphas = Json::object();
  for (const auto& [name, alpha] : config.alpha_pattern) alphas[name] = number_json(alpha);
  Json ranks = Json::object();
  for (const auto& [name, rank] : config.rank_pattern) ranks[name] = rank;
  const auto init = config.init_lora_weights;
  return {
      {"alpha_pattern", alphas},
      {"base_model_name_or_path", text_or_null(config.base_model_name_or_path)},
      {"bias", config.bias},
      {"exclude_modules", modules_json(config.exclude_modules)},
      {"fan_in_fan_out", config.fan_in_fan_out},
      {"init_lora_weights", init == LoraInit::gaussian ? Json("gaussian") : Json(init == LoraInit::kaiming)},
      {"layers_pattern", list_or_null(config.layers_pattern)},
      {"layers_to_transform", config.layers_to_transform ? Json(*config.layers_to_transform) : Json()},
      {"lora_alpha", number_json(config.lora_alpha)},
      {"lora_dropout", config.lora_dropout},
      {"modules_to_save", list_or_null(config.modules_to_save)},
      {"r", config.r},
      {"rank_pattern", ranks},
      {"target_modules", modules_json(config.target_modules)},
      {"task_type", text_or_null(config.task_type)},
      {"use_rslora", config.use_rslora}};
}

LoraConfig config_of_fields(const LoraFields& fields) {
  LoraConfig config;
  fields.number("r", config.r);
  fields.real("lora_alpha", config.lora_alpha, 1e9);
  fields.real("lora_dropout", config.lora_dropout, 1);
  fields.modules("target_modules", config.target_modules);
  fields.modules("exclude_modules", config.exclude_modules);
  fields.layers("layers_to_transform", config.layers_to_transform);
  if (const auto* found = fields.find("layers_pattern"); found != nullptr && found->is_string()) {
    config.layers_pattern = {found->get<std::string>()};
  } else {
    fields.texts("layers_pattern", config.layers_pattern);
  }
  fields.pattern("rank_pattern", config.rank_pattern);
  fields.pattern("alpha_pattern", config.alpha_pattern);
  fields.flag("use_rslora", config.use_rslora);
  fields.text("bias", config.bias);
  if (config.bias != "none" && config.bias != "all" && config.bias != "lora_only")
    fields.fail("bias", "\"none\", \"all\" or \"lora_only\"");
  fields.texts("modules_to_save", config.modules_to_save);
  fields.init("init_lora_weights", config.init_lora_weights);
  fields.flag("fan_in_fan_out", config.fan_in_fan_out);
  fields.text("task_type", config.task_type);
  fields.text("base_model_name_or_path", config.base_model_name_or_path);
  return config;
}

}  // namespace

bool ModuleNames::is_all_linear() const {
  return pattern_ == "all-linear" || (names_.size() == 1 && names_.front() == "all-linear");
}

LoraConfig LoraConfig::from_file(const std::filesystem::path& path) {
  const auto file = std::filesystem::is_directory(path) ? path / kAdapterConfigFileName : path;
  const LoraFields fields(file.string(), read_json_document(file));
  const auto* type = fields.find("peft_type");
  if (type == nullptr)
    throw DataError(file.string() + ": the field 'peft_type' is missing: expected an adapter of PEFT");
  if (*type != "LORA") fields.fail("peft_type", "\"LORA\": other adapters are not implemented");
  for (const char* field : kOtherLoraSettings) fields.require_neutral(field);
  LoraConfig config = config_of_fields(fields);
  config.file = json_text(fields.json());
  return config;
}

std::string LoraConfig::to_json() const {
  const Json now = known_lora_fields(*this);
  Json fields = file.empty() ? neutral_fields() : Json::parse(file);
  // A value that did not change is written as it was: 8.0, or one name for a list.
  const Json before =
      file.empty() ? Json::object() : known_lora_fields(config_of_fields(LoraFields("", Json::parse(file))));
  for (const auto& [field, value] : now.items()) {
    if (!before.contains(field) || before[field] != value) fields[field] = value;
  }
  // As Python's json.dump(sort_keys=True).
  return json_text(sorted_fields(fields), 2);
}

}  // namespace lockstep::models
