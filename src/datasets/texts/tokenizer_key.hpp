#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/datasets/map.hpp"
#include "lockstep/datasets/tokenize.hpp"

namespace lockstep {

// What decides the ids of a tokenizer, for the keys of what is cached of them. All functions are *Local*.

template <class Value>
nlohmann::json json_or_null(const std::optional<Value>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

/// The options by which a tokenizer is loaded, every one that can change ids.
nlohmann::json key_of_tokenizer(const tokenizer::PretrainedOptions& options);

/// How the rows of a data set become tokens.
struct TextMap {
  const char* name;
  /// Besides the tokenizer's own.
  nlohmann::json parameters;
  std::filesystem::path tokenizer;
  tokenizer::PretrainedOptions pretrained;
};

/// Sets what is common to all maps that make tokens: name, version, key, and the columns that go away.
void set_text_map(MapOptions& options, const TextMap& map, std::vector<std::string> removed);

/// A tokenizer's files, and the model's configuration, which may name its class.
std::vector<std::filesystem::path> files_of_tokenizer(const std::filesystem::path& path);

}  // namespace lockstep
