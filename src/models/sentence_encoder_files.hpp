#pragma once

#include <filesystem>
#include <string>

#include "lockstep/models/sentence_encoder.hpp"

namespace lockstep::models {

/// The list of what a text goes through, in a folder of sentence-transformers.
constexpr const char* kModulesFileName = "modules.json";

/// The folder of the encoder, relative to `folder`: that of modules.json's transformer, mostly empty.
std::filesystem::path transformer_path(const std::filesystem::path& folder);

/// Writes modules.json and the settings that it names, for an encoder of this config.json.
void write_sentence_files(const SentenceEncoderConfig& config, const std::string& encoder_config,
                          const std::filesystem::path& folder);

/// Makes the folders that modules.json names: that of a normalization has no files.
void make_module_folders(const std::filesystem::path& folder);

}  // namespace lockstep::models
