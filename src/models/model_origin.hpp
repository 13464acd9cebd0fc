#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/models/pretrained_model.hpp"

namespace lockstep::models {

/// The folder that a model came from, as far as save_pretrained() keeps it.
struct ModelOrigin {
  /// config.json, whole.
  nlohmann::ordered_json config;
  /// The fields that Lockstep knows, as they were read: those that differ from them have changed since.
  nlohmann::ordered_json known;
  /// generation_config.json; null if there is none.
  nlohmann::ordered_json generation;
  /// The path of the file that has the settings of generate(): generation_config.json or, without one,
  /// config.json.
  std::string generation_file;
  /// Other files that belong to the model, by their path in the folder; neither weights nor the tokenizer's.
  std::map<std::string, std::string> companions;
};

/// Reads what is beside `path`, a config.json or its folder. `known` are the fields of the configuration that
/// was read from it. Throws DataError for invalid files.
std::shared_ptr<const ModelOrigin> read_origin(const std::filesystem::path& path,
                                               nlohmann::ordered_json known);

/// The text of config.json for a configuration whose known fields are `now`: the file of `origin` with the
/// fields that changed, or these fields alone if there is none. `architecture` is the class of the weights in
/// Python.
std::string config_text(const ModelOrigin* origin, const std::string& architecture,
                        const nlohmann::ordered_json& now);

/// The fields of generation_config.json, or of config.json if there is none, for a model of this
/// configuration: the tokens of generate() that changed since are replaced.
nlohmann::ordered_json generation_fields(const ModelOrigin& origin, const ModelConfig& now);

}  // namespace lockstep::models
