#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "lockstep/datasets/tokenize.hpp"

namespace lockstep {

// What decides the ids of a tokenizer, for the keys of what is cached of them. All functions are *Local*.

template <class Value>
nlohmann::json json_or_null(const std::optional<Value>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

/// The options by which a tokenizer is loaded, every one that can change ids.
nlohmann::json key_of_tokenizer(const tokenizer::PretrainedOptions& options);

/// A tokenizer's files, and the model's configuration, which may name its class.
std::vector<std::filesystem::path> files_of_tokenizer(const std::filesystem::path& path);

}  // namespace lockstep
