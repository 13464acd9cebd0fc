#include "datasets/map/map_key.hpp"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "core/json_text.hpp"
#include "core/text.hpp"
#include "datasets/dataset/dataset_access.hpp"
#include "datasets/map/code_id.hpp"
#include "datasets/table/content_hash.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr int kLayout = 2;

Json parse_parameters(const MapOptions& options) {
  Json parameters = Json::parse(options.parameters, nullptr, false);
  if (parameters.is_object()) return parameters;
  throw UsageError(fmt::format(
      "map '{}': the parameters '{}' are not a JSON object. Expected one, as in {{\"max_length\": 128}}.",
      options.name, options.parameters));
}

/// An object's key as a part of a field's name; quoted if it has a dot, which separates keys.
std::string name_part(const std::string& key) {
  return key.empty() || key.find_first_of(".\"") != std::string::npos ? json_text(Json(key)) : key;
}

/// Adds a field per value that is not an object, such as "parameters.tokens.pad", so that an explanation can
/// name it.
void flatten(const std::string& name, const Json& value, std::map<std::string, std::string>& fields) {
  if (!value.is_object() || value.empty()) {
    fields[name] = json_text(value);
    return;
  }
  for (const auto& [key, each] : value.items()) flatten(name + "." + name_part(key), each, fields);
}

/// Rejects captured values that are not part of the key: they may differ in the next run.
void check_captures(const mapping::Code& code, const MapOptions& options, const Json& parameters) {
  if (!code.captures || options.version || !parameters.empty()) return;
  throw UsageError(fmt::format(
      "map '{}': the function or its setup captures values, and no key can show them: with other values the "
      "old result would be found. Put them into `parameters` (R\"({{\"threshold\": 0.5}})\"), or give a "
      "`version` and increase it when they change; a lambda without captures needs neither.",
      options.name));
}

void add_code(const mapping::Code& code, const MapOptions& options,
              std::map<std::string, std::string>& fields) {
  if (options.version) {
    fields["version"] = json_text(Json(*options.version));
    return;
  }
  fields["function"] = json_text(Json(code_id_of(code.function)));
  fields["setup"] = json_text(Json(code_id_of(code.setup)));
  fields["library_build_id"] = json_text(Json(build_id_of(reinterpret_cast<const void*>(&map_manifest))));
}

void add_input_files(const MapOptions& options, const HashMemory& memory,
                     std::map<std::string, std::string>& fields) {
  for (std::size_t i = 0; i < options.input_files.size(); ++i) {
    const auto& path = options.input_files[i];
    fields[fmt::format("input_files.{}.{}", i, utf8_text(path.filename().string()))] =
        json_text(Json(memory.of(path)));
  }
}

}  // namespace

CacheManifest map_manifest(const ArrowDataset& dataset, const std::string& operation,
                           const mapping::Code& code, const MapOptions& options,
                           const std::filesystem::path& cache) {
  const HashMemory memory(cache);
  const Json parameters = parse_parameters(options);
  check_captures(code, options, parameters);
  CacheManifest manifest;
  manifest.name = options.name;
  auto& fields = manifest.fields;
  fields["layout"] = std::to_string(kLayout);
  fields["operation"] = json_text(Json(operation));
  fields["source"] = json_text(Json(DatasetAccess::fingerprint(dataset, memory)));
  fields["batch_size"] = std::to_string(options.batch_size);
  fields["remove_columns"] = json_text(Json(options.remove_columns));
  if (options.features) fields["features"] = json_text(Json::parse(options.features->to_json()));
  if (options.shard_rows > 0) fields["shard_rows"] = std::to_string(options.shard_rows);
  flatten("parameters", parameters, fields);
  add_code(code, options, fields);
  add_input_files(options, memory, fields);
  const Json whole = {{"name", options.name}, {"fields", fields}};
  manifest.key = table::content_hash(json_text(whole));
  return manifest;
}

}  // namespace lockstep
