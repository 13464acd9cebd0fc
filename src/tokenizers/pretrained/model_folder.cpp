#include "tokenizers/pretrained/model_folder.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "lockstep/core/error.hpp"
#include "tokenizers/json_file.hpp"

namespace lockstep::tokenizer {
namespace {

nlohmann::json document_in(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return nullptr;
  auto document = parse_json(read_text_file(file), file.string());
  static_cast<void>(Node(document, file.string()).object());
  return document;
}

}  // namespace

std::string ModelFolder::sentence_piece() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    const auto kind = entry.path().extension();
    if (kind == ".model" || kind == ".spm") names.push_back(entry.path().filename().string());
  }
  return names.empty() ? "" : *std::min_element(names.begin(), names.end());
}

ModelFolder read_model_folder(const std::filesystem::path& path) {
  ModelFolder folder{.path = path};
  folder.config = document_in(folder.file("config.json"));
  folder.tokenizer_config = document_in(folder.file("tokenizer_config.json"));
  folder.special_tokens_map = document_in(folder.file("special_tokens_map.json"));
  folder.added_tokens = document_in(folder.file("added_tokens.json"));
  folder.tokenizer = document_in(folder.file("tokenizer.json"));
  return folder;
}

void fail_sentence_piece(const ModelFolder& folder, const std::string& sentence_piece) {
  throw DataError(fmt::format(
      "'{0}' holds its tokenizer only as the SentencePiece file '{1}': write its tokenizer.json once, with "
      "python3 -c \"from transformers import AutoTokenizer; "
      "AutoTokenizer.from_pretrained('{0}').save_pretrained('{0}')\" (needs the packages transformers, "
      "sentencepiece and protobuf).",
      folder.path.string(), sentence_piece));
}

}  // namespace lockstep::tokenizer
