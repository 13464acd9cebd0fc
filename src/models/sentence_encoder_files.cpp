#include "models/sentence_encoder_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/file_system.hpp"
#include "core/json.hpp"
#include "core/json_text.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "models/config_file.hpp"

namespace lockstep::models {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kPoolingFolder = "1_Pooling";
constexpr const char* kNormalizeFolder = "2_Normalize";

/// A mode's name in newer files, and its switch in older ones.
struct PoolingName {
  PoolingMode mode;
  const char* name;
  const char* flag;
};

constexpr std::array<PoolingName, 6> kPoolingNames = {
    {{PoolingMode::cls, "cls", "pooling_mode_cls_token"},
     {PoolingMode::max, "max", "pooling_mode_max_tokens"},
     {PoolingMode::mean, "mean", "pooling_mode_mean_tokens"},
     {PoolingMode::mean_sqrt_len_tokens, "mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens"},
     {PoolingMode::weightedmean, "weightedmean", "pooling_mode_weightedmean_tokens"},
     {PoolingMode::lasttoken, "lasttoken", "pooling_mode_lasttoken"}}};

/// A module: the last part of its class in Python, and its folder.
struct SentenceModule {
  std::string kind;
  fs::path path;
};

std::vector<SentenceModule> modules_in(const fs::path& folder) {
  const fs::path file = folder / kModulesFileName;
  const Json json = read_json_document(file);
  const auto fail = [&] {
    throw DataError(
        fmt::format("{}: expected a list of modules, each with 'type' and 'path'", file.string()));
  };
  if (!json.is_array() || json.empty()) fail();
  std::vector<SentenceModule> modules;
  for (const auto& entry : json) {
    const auto text = [&](const char* field) {
      if (!entry.is_object() || !entry.contains(field) || !entry[field].is_string()) fail();
      return entry[field].get<std::string>();
    };
    const std::string type = text("type");
    const fs::path path = text("path");
    const bool leaves = path.is_absolute() || std::find(path.begin(), path.end(), "..") != path.end();
    if (leaves)
      throw DataError(fmt::format("{}: the path '{}' leads out of the folder", file.string(), path.string()));
    modules.push_back({type.substr(type.rfind('.') + 1), path});
  }
  return modules;
}

/// The width of an encoder's states, by its config.json.
std::int64_t width_in(const std::string& encoder_config) {
  const Json json = Json::parse(encoder_config);
  for (const char* field : {"hidden_size", "dim", "d_model"})
    if (json.contains(field)) return json[field].get<std::int64_t>();
  throw UsageError("the configuration of the encoder does not say how wide its states are");
}

std::vector<PoolingMode> pooling_in(const fs::path& folder) {
  const fs::path path = folder / kConfigFileName;
  const ConfigFile file(path);
  std::vector<PoolingMode> modes;
  std::vector<std::string> names;
  for (const auto& [mode, name, flag] : kPoolingNames) names.emplace_back(name);
  const Json json = read_json_document(path);
  if (file.has("pooling_mode")) {
    const Json list =
        json["pooling_mode"].is_array() ? json["pooling_mode"] : Json::array({json["pooling_mode"]});
    for (const auto& [mode, name, flag] : kPoolingNames)
      if (std::find(list.begin(), list.end(), name) != list.end()) modes.push_back(mode);
    if (modes.size() != list.size() || modes.empty())
      file.fail("pooling_mode", fmt::format("one or several of {}", fmt::join(names, ", ")));
    return modes;
  }
  for (const auto& [mode, name, flag] : kPoolingNames) {
    bool on = false;
    file.flag(flag, on);
    if (on) modes.push_back(mode);
  }
  if (modes.empty())
    throw DataError(fmt::format("{}: no pooling mode is true; expected one of {}", path.string(),
                                fmt::join(names, ", ")));
  return modes;
}

}  // namespace

SentenceEncoderConfig SentenceEncoderConfig::from_file(const fs::path& folder) {
  const auto modules = modules_in(folder);
  SentenceEncoderConfig config{.pooling = {}, .normalize = false, .max_seq_length = 0};
  for (std::size_t i = 0; i < modules.size(); ++i) {
    const auto& [kind, path] = modules[i];
    if (i == 0 && kind == "Transformer") continue;
    if (i == 1 && kind == "Pooling") {
      config.pooling = pooling_in(folder / path);
    } else if (i == 2 && kind == "Normalize") {
      config.normalize = true;
    } else {
      throw DataError(
          fmt::format("{}: module {} is a {}; expected a Transformer, a Pooling and, at most, a Normalize: "
                      "others are not implemented",
                      (folder / kModulesFileName).string(), i, kind));
    }
  }
  if (config.pooling.empty())
    throw DataError((folder / kModulesFileName).string() + ": there is no Pooling after the Transformer");
  const fs::path settings = folder / modules[0].path / "sentence_bert_config.json";
  if (fs::exists(settings)) {
    const ConfigFile file(settings);
    file.number("max_seq_length", config.max_seq_length);
    file.flag("do_lower_case", config.do_lower_case);
  }
  return config;
}

fs::path transformer_path(const fs::path& folder) { return modules_in(folder).front().path; }

void write_sentence_files(const SentenceEncoderConfig& config, const std::string& encoder_config,
                          const fs::path& folder) {
  const auto write = [&](const fs::path& path, const Json& json) {
    write_atomically(folder / path, json_text(json, 2) + "\n");
  };
  const auto module = [](int number, const char* path, const std::string& kind) {
    return Json{{"idx", number},
                {"name", std::to_string(number)},
                {"path", path},
                {"type", "sentence_transformers.models." + kind}};
  };
  Json modules = Json::array({module(0, "", "Transformer"), module(1, kPoolingFolder, "Pooling")});
  if (config.normalize) modules.push_back(module(2, kNormalizeFolder, "Normalize"));
  Json pooling = {{"word_embedding_dimension", width_in(encoder_config)}};
  for (const auto& [mode, name, flag] : kPoolingNames)
    pooling[flag] = std::find(config.pooling.begin(), config.pooling.end(), mode) != config.pooling.end();
  file_system::make_folders(folder / kPoolingFolder);
  write(fs::path(kPoolingFolder) / kConfigFileName, pooling);
  Json settings = {{"max_seq_length", nullptr}, {"do_lower_case", config.do_lower_case}};
  if (config.max_seq_length > 0) settings["max_seq_length"] = config.max_seq_length;
  write("sentence_bert_config.json", settings);
  write("config_sentence_transformers.json",
        {{"prompts", Json::object()}, {"default_prompt_name", nullptr}, {"similarity_fn_name", "cosine"}});
  write(kModulesFileName, modules);
}

void make_module_folders(const fs::path& folder) {
  for (const auto& module : modules_in(folder)) file_system::make_folders(folder / module.path);
}

}  // namespace lockstep::models
