#include "models/config_file.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/json.hpp"
#include "core/json_text.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/models/pretrained.hpp"
#include "lockstep/parallel/adapter_layer.hpp"

namespace lockstep::models {
namespace {

std::filesystem::path file_in(const std::filesystem::path& path) {
  return std::filesystem::is_directory(path) ? path / kConfigFileName : path;
}

/// config.json. An adapter's folder, which has another file in its place, is named as such.
nlohmann::ordered_json document_in(const std::filesystem::path& path) {
  const auto file = file_in(path), adapter = path / parallel::kAdapterConfigFile;
  if (std::filesystem::exists(file) || !std::filesystem::exists(adapter)) return read_json_document(file);
  const auto config = read_json_document(adapter);
  const auto base = config.find("base_model_name_or_path");
  throw DataError(fmt::format(
      "{} has no config.json: it is the folder of an adapter{}. Open the model that it belongs to, and then "
      "the adapter (--model and --adapter, or load_adapter()); merge_lora() makes one model of them",
      path.string(),
      base != config.end() && base->is_string() ? " of " + base->get<std::string>() : std::string()));
}

bool is_integer_from(const nlohmann::ordered_json& value, std::int64_t least) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  return value.is_number_integer() && value >= least && value < kMost;
}

}  // namespace

ConfigFile ConfigFile::of_generation(const std::filesystem::path& path) {
  const auto generation = std::filesystem::path(file_in(path)).replace_filename("generation_config.json");
  return ConfigFile(std::filesystem::exists(generation) ? generation : path);
}

ConfigFile::ConfigFile(const std::filesystem::path& path)
    : file_(file_in(path).string()), json_(document_in(path)) {
  if (!json_.is_object()) throw DataError(file_ + " is not a model configuration: expected a JSON object");
}

ConfigFile::ConfigFile(std::string name, nlohmann::ordered_json json)
    : file_(std::move(name)), json_(std::move(json)) {}

const nlohmann::ordered_json* ConfigFile::find(const char* field) const {
  const auto found = json_.find(field);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

void ConfigFile::fail(const char* field, const std::string& what) const {
  throw DataError(
      fmt::format("{}: the field '{}' is {}, expected {}", file_, field, json_text(json_.at(field)), what));
}

void ConfigFile::require_type(const std::string& type) const {
  const auto* found = find("model_type");
  if (found && *found != type)
    fail("model_type", fmt::format("'{}': this is the configuration of another model", type));
}

std::optional<ConfigFile> ConfigFile::section(const char* field) const {
  const auto* found = find(field);
  if (found == nullptr) return std::nullopt;
  if (!found->is_object()) fail(field, "a JSON object");
  return ConfigFile(fmt::format("{}, '{}'", file_, field), *found);
}

std::string ConfigFile::kind() const {
  for (const char* field : {"num_experts", "num_local_experts", "n_routed_experts"}) {
    if (has(field)) return " (a mixture of experts)";
  }
  if (has("vision_config")) return " (a model of images and texts)";
  if (has("audio_config")) return " (a model of sound and texts)";
  return "";
}

std::string ConfigFile::model_type(const std::vector<std::string>& known) const {
  const auto* found = find("model_type");
  if (found && std::find(known.begin(), known.end(), *found) != known.end()) return found->get<std::string>();
  throw DataError(fmt::format("{}: the field 'model_type' is {}, which Lockstep does not know{}; it knows {}",
                              file_, found ? json_text(*found) : "missing", kind(), fmt::join(known, ", ")));
}

void ConfigFile::number(const char* field, std::int64_t& value, std::int64_t least) const {
  const auto* found = find(field);
  if (!found) return;
  const bool fits = is_integer_from(*found, least);
  if (!fits) fail(field, fmt::format("an integer of at least {} and below 2^31", least));
  value = found->get<std::int64_t>();
}

void ConfigFile::number(const char* field, std::optional<std::int64_t>& value, std::int64_t least) const {
  if (!json_.contains(field)) return;
  std::int64_t found = 0;
  number(field, found, least);
  value = find(field) != nullptr ? std::optional(found) : std::nullopt;
}

void ConfigFile::tokens(const char* field, TokenIds& value) const {
  value.clear();
  const auto* found = find(field);
  if (!found) return;
  for (const auto& id : found->is_array() ? *found : nlohmann::ordered_json::array({*found})) {
    if (!is_integer_from(id, 0)) fail(field, "a token's number, or a list of such");
    value.push_back(id.get<std::int64_t>());
  }
}

void ConfigFile::real(const char* field, double& value, double most) const {
  const auto* found = find(field);
  if (!found) return;
  const bool fits = found->is_number() && *found >= 0 && *found <= most;
  if (!fits) fail(field, fmt::format("a number from 0 to {:f}", most));
  value = found->get<double>();
}

void ConfigFile::real(const char* field, std::optional<double>& value, double most) const {
  if (find(field) == nullptr) return;
  real(field, value.emplace(), most);
}

void ConfigFile::reals(const char* field, std::vector<double>& values, double most) const {
  const auto* found = find(field);
  if (!found) return;
  const auto fits = [&](const auto& value) { return value.is_number() && value >= 0 && value <= most; };
  if (!found->is_array() || !std::all_of(found->begin(), found->end(), fits))
    fail(field, fmt::format("a list of numbers from 0 to {:f}", most));
  values = found->get<std::vector<double>>();
}

void ConfigFile::numbers(const char* field, std::vector<std::int64_t>& values, std::int64_t least) const {
  const auto* found = find(field);
  if (!found) return;
  const auto fits = [&](const auto& value) { return is_integer_from(value, least); };
  if (!found->is_array() || !std::all_of(found->begin(), found->end(), fits))
    fail(field, fmt::format("a list of integers of at least {} and below 2^31", least));
  values = found->get<std::vector<std::int64_t>>();
}

void ConfigFile::pair(const char* field, std::int64_t& first, std::int64_t& second,
                      std::int64_t least) const {
  const auto* found = find(field);
  if (!found) return;
  const auto fits = [&](const auto& value) { return is_integer_from(value, least); };
  const bool is_pair = found->is_array() && found->size() == 2 && fits((*found)[0]) && fits((*found)[1]);
  if (!is_pair && !fits(*found))
    fail(field, fmt::format("an integer of at least {} and below 2^31, or a list of two", least));
  first = (is_pair ? (*found)[0] : *found).get<std::int64_t>();
  second = (is_pair ? (*found)[1] : *found).get<std::int64_t>();
}

void ConfigFile::text(const char* field, std::string& value) const {
  const auto* found = find(field);
  if (!found) return;
  if (!found->is_string()) fail(field, "a string");
  value = found->get<std::string>();
}

void ConfigFile::flag(const char* field, bool& value) const {
  const auto* found = find(field);
  if (!found) return;
  if (!found->is_boolean()) fail(field, "true or false");
  value = found->get<bool>();
}

void ConfigFile::choice(const char* field, std::string& value,
                        std::initializer_list<const char*> known) const {
  if (find(field) == nullptr) return;
  std::string chosen;
  text(field, chosen);
  if (std::find(known.begin(), known.end(), chosen) == known.end())
    fail(field, fmt::format("one of {}", fmt::join(known, ", ")));
  value = chosen;
}

void ConfigFile::choices(const char* field, std::vector<std::string>& values,
                         std::initializer_list<const char*> known) const {
  const auto* found = find(field);
  if (!found) return;
  const auto fits = [&](const auto& value) {
    return std::find(known.begin(), known.end(), value) != known.end();
  };
  if (!found->is_array() || !std::all_of(found->begin(), found->end(), fits))
    fail(field, fmt::format("a list of {}", fmt::join(known, ", ")));
  values = found->get<std::vector<std::string>>();
}

void ConfigFile::require_none(const char* field, const std::string& what) const {
  if (has(field)) fail(field, what);
}

void ConfigFile::require_some(const char* field) const {
  if (!has(field)) throw DataError(fmt::format("{}: the field '{}' is missing", file_, field));
}

void ConfigFile::require(const char* field, bool value) const {
  bool found = value;
  flag(field, found);
  if (found != value) fail(field, std::string(value ? "true" : "false") + ": the other is not implemented");
}

void ConfigFile::require_multiple(const char* field, std::int64_t value, const char* of,
                                  std::int64_t divisor) const {
  if (value % divisor == 0) return;
  throw DataError(fmt::format("{}: the field '{}' is {}, expected a multiple of '{}', which is {}", file_,
                              field, value, of, divisor));
}

void ConfigFile::labels(std::int64_t& count, std::vector<std::string>& names) const {
  number("num_labels", count);
  const auto* entries = find("id2label");
  if (!entries) return;
  constexpr const char* kExpected = "the name of each class under its number, from \"0\" on";
  if (!entries->is_object() || entries->empty()) fail("id2label", kExpected);
  names.clear();
  for (std::size_t label = 0; label < entries->size(); ++label) {
    const auto name = entries->find(std::to_string(label));
    if (name == entries->end() || !name->is_string()) fail("id2label", kExpected);
    names.push_back(name->get<std::string>());
  }
  count = static_cast<std::int64_t>(names.size());
}

void require_said(const std::string& model_type, const std::vector<SaidField>& fields) {
  std::vector<std::string> lost;
  for (const auto& field : fields)
    if (!field.is_said) lost.emplace_back(field.name);
  if (lost.empty()) return;
  throw UsageError(fmt::format(
      "config.json of a '{}' cannot say what this model does: {}. In Python it would be another model; save "
      "its weights alone, with Accelerator::save_model or save_safetensors",
      model_type, fmt::join(lost, ", ")));
}

nlohmann::ordered_json token_ids(const TokenIds& ids) {
  if (ids.empty()) return nullptr;
  return ids.size() == 1 ? nlohmann::ordered_json(ids.front()) : nlohmann::ordered_json(std::vector(ids));
}

}  // namespace lockstep::models
