#include "models/model_origin.hpp"

#include "core/input_file.hpp"
#include "core/json.hpp"
#include "core/json_text.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/models/pretrained.hpp"
#include "models/config_file.hpp"

namespace lockstep::models {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Files = std::map<std::string, std::string>;

/// Settings of preprocessors and of sentence-transformers. The files of the tokenizer are saved with it.
constexpr const char* kCompanions[] = {"preprocessor_config.json", "processor_config.json", "modules.json",
                                       "sentence_bert_config.json", "config_sentence_transformers.json"};

std::string content_of(const fs::path& path) {
  InputFile file(path);
  std::string text(file.size(), '\0');
  file.read(text.data(), text.size());
  return text;
}

void add_folder(Files& files, const fs::path& folder, const fs::path& part) {
  if (!fs::is_directory(folder / part)) return;
  for (const auto& entry : fs::recursive_directory_iterator(folder / part)) {
    if (!entry.is_regular_file()) continue;
    files[fs::relative(entry.path(), folder).generic_string()] = content_of(entry.path());
  }
}

/// Whether it leads into a folder below.
bool is_below(const fs::path& path) {
  const auto normal = path.lexically_normal();
  return !path.empty() && !path.is_absolute() && *normal.begin() != ".." && *normal.begin() != ".";
}

/// The folders that sentence-transformers names beside the model itself: pooling, dense layers.
void add_modules(Files& files, const fs::path& folder) {
  const auto list = files.find("modules.json");
  if (list == files.end()) return;
  const auto modules =
      json_tree::parse<Json>(list->second, fmt::format("'{}'", (folder / list->first).string()));
  if (!modules.is_array()) return;
  for (const auto& module : modules) {
    const bool has_path = module.is_object() && module.contains("path") && module["path"].is_string();
    if (!has_path) continue;
    const fs::path part = module["path"].get<std::string>();
    // The transformer itself may be in a folder of its own; that is the folder of another model.
    const bool is_model = fs::exists(folder / part / kConfigFileName) &&
                          module.value("type", std::string()).ends_with("Transformer");
    if (is_below(part) && !is_model) add_folder(files, folder, part);
  }
}

/// The model's tokens of generate(), as generation_config.json has them.
Json tokens_of(const ModelConfig& config) {
  const auto json = [](const std::optional<std::int64_t>& token) { return token ? Json(*token) : Json(); };
  return {{"bos_token_id", json(config.bos_token_id)},
          {"eos_token_id", token_ids(config.eos_token_id)},
          {"pad_token_id", json(config.pad_token_id)},
          {"decoder_start_token_id", json(config.decoder_start_token_id)},
          {"forced_bos_token_id", json(config.forced_bos_token_id)},
          {"forced_eos_token_id", json(config.forced_eos_token_id)}};
}

}  // namespace

std::shared_ptr<const ModelOrigin> read_origin(const fs::path& path, Json known) {
  const bool is_folder = fs::is_directory(path);
  const fs::path folder = is_folder ? path : path.parent_path();
  const fs::path config = is_folder ? path / kConfigFileName : path;
  ModelOrigin origin{.config = read_json_document(config),
                     .known = std::move(known),
                     .generation = nullptr,
                     .generation_file = config.string(),
                     .companions = {}};
  const fs::path generation = folder / "generation_config.json";
  if (fs::exists(generation)) {
    origin.generation = read_json_document(generation);
    origin.generation_file = generation.string();
    if (!origin.generation.is_object())
      throw DataError(generation.string() + " is not a generation configuration: expected a JSON object");
  }
  for (const char* name : kCompanions) {
    if (fs::is_regular_file(folder / name)) origin.companions[name] = content_of(folder / name);
  }
  add_modules(origin.companions, folder);
  return std::make_shared<const ModelOrigin>(std::move(origin));
}

std::string config_text(const ModelOrigin* origin, const std::string& architecture, const Json& now) {
  Json file = {{"architectures", Json::array({architecture})}};
  if (origin == nullptr) {
    file.update(now);
    return json_text(file, 2) + "\n";
  }
  if (origin->config.contains("architectures")) {
    const Json own = file["architectures"];
    file = origin->config;
    file["architectures"] = own;
  } else {
    file.update(origin->config);
  }
  const Json& known = origin->known;
  for (const auto& [field, value] : now.items()) {
    const auto before = known.find(field);
    if (before == known.end() || *before != value) file[field] = value;
  }
  for (const auto& entry : known.items()) {
    if (!now.contains(entry.key())) file.erase(entry.key());
  }
  // The two name the classes together: a file may have given one of them alone.
  if (file.contains("id2label") && !file.contains("label2id") && now.contains("label2id"))
    file["label2id"] = now["label2id"];
  // The number of classes is that of their names: one that the file gives beside them would be an old one.
  if (now.contains("id2label") && known.contains("id2label") && now["id2label"] != known["id2label"])
    file.erase("num_labels");
  return json_text(file, 2) + "\n";
}

Json generation_fields(const ModelOrigin& origin, const ModelConfig& now) {
  const Json tokens = tokens_of(now);
  Json fields = origin.generation.is_null() ? origin.config : origin.generation;
  for (const auto& [field, token] : tokens.items()) {
    const auto before = origin.known.find(field);
    if (token != (before == origin.known.end() ? Json() : *before)) fields[field] = token;
  }
  return fields;
}

}  // namespace lockstep::models
