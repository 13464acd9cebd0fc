#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace lockstep::tokenizer {

/// The files of a model's folder that say how its texts become tokens, as models are published. A file that
/// is not there is null.
struct ModelFolder {
  std::filesystem::path path;
  nlohmann::json config = nullptr;
  nlohmann::json tokenizer_config = nullptr;
  nlohmann::json special_tokens_map = nullptr;
  nlohmann::json added_tokens = nullptr;
  nlohmann::json tokenizer = nullptr;

  /// The path of a file, for reading and for errors.
  std::filesystem::path file(const char* name) const { return path / name; }
  bool has(const char* name) const { return std::filesystem::exists(file(name)); }
  /// The name of a SentencePiece or tiktoken file; empty if there is none.
  std::string sentence_piece() const;
};

/// Reads the files. Throws DataError, naming the file, for one that is not an object of JSON.
ModelFolder read_model_folder(const std::filesystem::path& path);

/// The error for a folder that holds its vocabulary only as the file `sentence_piece`.
[[noreturn]] void fail_sentence_piece(const ModelFolder& folder, const std::string& sentence_piece);

}  // namespace lockstep::tokenizer
