#include "files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/datasets/chats.hpp"
#include "lockstep/datasets/text_files.hpp"
#include "lockstep/datasets/tokenize.hpp"

namespace texts {
namespace {

using lockstep::ArrowDataset;
using lockstep::DataError;
using lockstep::UsageError;
namespace fs = std::filesystem;

ArrowDataset read(const fs::path& path, const std::string& format) {
  if (format == "squad") return lockstep::load_squad(path);
  if (format == "text" || path.extension() == ".txt") return lockstep::load_text(path);
  return format == "chats" ? lockstep::load_chats(path) : ArrowDataset::load(path);
}

/// Whether no text has the token unless it spells it out: models of texts are published with the special
/// tokens of models of pictures (Gemma 3). Those that have a name, as pad_token, or stand in a chat template
/// are used.
bool is_never_used(const lockstep::Tokenizer& tokenizer, std::int64_t id) {
  const auto token = tokenizer.id_to_token(id);
  if (!token || !tokenizer.decode({id}).empty()) return false;
  for (const char* name :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    if (tokenizer.special_token_id(name) == id) return false;
  }
  const auto& templates = tokenizer.settings().chat_templates;
  return std::none_of(templates.begin(), templates.end(),
                      [&](const auto& entry) { return entry.second.find(*token) != std::string::npos; });
}

/// Sets the languages in a tokenizer_config.json, which keeps everything else.
void write_languages(const Languages& languages, const fs::path& path) {
  if (languages.src_lang.empty() && languages.tgt_lang.empty()) return;
  nlohmann::ordered_json config = nlohmann::ordered_json::object();
  if (fs::exists(path)) {
    std::ifstream file(path);
    config = nlohmann::ordered_json::parse(file);
  }
  if (!languages.src_lang.empty()) config["src_lang"] = languages.src_lang;
  if (!languages.tgt_lang.empty()) config["tgt_lang"] = languages.tgt_lang;
  lockstep::write_atomically(
      path, config.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

}  // namespace

ArrowDataset read_table(const std::string& flag, const std::string& path, const std::string& format) {
  if (path.empty()) throw UsageError(flag + " is missing: name a file.");
  if (!fs::exists(path)) throw UsageError(fmt::format("{} {}: there is no such file.", flag, path));
  const ArrowDataset table = read(path, format);
  if (table.num_rows() == 0) throw DataError(fmt::format("{} {}: the file has no rows.", flag, path));
  return table;
}

void check_column(const ArrowDataset& table, const std::string& flag, const std::string& column) {
  if (table.has_column(column)) return;
  throw UsageError(fmt::format("{}: there is no column '{}'; the columns are '{}'.", flag, column,
                               fmt::join(table.column_names(), "', '")));
}

void check_texts(const ArrowDataset& table, const std::string& flag, const std::string& column) {
  check_column(table, flag, column);
  const auto texts = table.column(column);
  const auto kind = texts.type().kind();
  if (kind != lockstep::TypeKind::utf8 && kind != lockstep::TypeKind::large_utf8) {
    throw UsageError(fmt::format("{}: the column '{}' has the type {}, expected text.", flag, column,
                                 texts.type().text()));
  }
  const auto missing = texts.null_count();
  if (missing == 0) return;
  std::int64_t row = 0;
  while (!texts.is_null(row)) ++row;
  throw DataError(
      fmt::format("{}: the column '{}' has no text in {} of {} rows, the first is row {} (from 0): "
                  "fill them in, or leave these rows out.",
                  flag, column, missing, texts.size(), row));
}

lockstep::MapOptions map_options(const lockstep::DistributedContext& ranks, const std::string& cache_folder,
                                 bool progress) {
  lockstep::MapOptions options;
  options.ranks = ranks;
  options.cache_folder = cache_folder;
  options.progress = progress;
  return options;
}

void check_vocabulary(const std::string& tokenizer, const std::string& model, std::int64_t vocab_size) {
  const auto loaded = lockstep::load_tokenizer(tokenizer);
  const auto words = static_cast<std::int64_t>(loaded.vocab_size());
  if (words <= vocab_size) return;
  std::int64_t unused = 0;
  for (std::int64_t id = vocab_size; id < words; ++id) unused += is_never_used(loaded, id) ? 1 : 0;
  if (unused == words - vocab_size) return;
  throw DataError(fmt::format(
      "the tokenizer {} has {} tokens, but the model in {} knows {}: they do not belong together.", tokenizer,
      words, model, vocab_size));
}

void check_lower_case(const std::string& tokenizer, const std::string& model, bool do_lower_case) {
  if (!do_lower_case || lockstep::load_tokenizer(tokenizer).normalize("A") == "a") return;
  throw DataError(fmt::format(
      "sentence_bert_config.json of {} says do_lower_case, but the tokenizer {} keeps capitals: give it a "
      "normalizer for lower "
      "case (in tokenizer.json: {{\"type\": \"Lowercase\"}}), or give texts in lower case and set "
      "do_lower_case to "
      "false.",
      model, tokenizer));
}

void check_length(const char* flag, std::int64_t length, std::int64_t longest) {
  if (length <= longest) return;
  throw UsageError(fmt::format("{} {} is more than the model takes: {} tokens.", flag, length, longest));
}

std::int64_t choose_length(const char* flag, std::int64_t length, std::int64_t longest, std::int64_t usual) {
  if (length == 0) return std::min(longest, usual);
  check_length(flag, length, longest);
  return length;
}

bool copy_unless_same(const fs::path& from, const fs::path& to) {
  if (fs::exists(to) && fs::equivalent(from, to)) return false;
  fs::copy_file(from, to, fs::copy_options::overwrite_existing);
  return true;
}

void copy_tokenizer(const std::string& tokenizer, const std::string& folder, const Languages& languages) {
  // A JSON file of any name is copied as tokenizer.json, so that from_pretrained and --model find it.
  const bool is_renamed = fs::is_regular_file(tokenizer) && fs::path(tokenizer).extension() == ".json";
  for (const auto& file : lockstep::tokenizer_files(tokenizer)) {
    // Chat templates may be in a folder of their own.
    const auto name = fs::is_directory(tokenizer) ? file.lexically_relative(tokenizer) : file.filename();
    const fs::path to = fs::path(folder) / (is_renamed ? fs::path("tokenizer.json") : name);
    fs::create_directories(to.parent_path());
    if (!copy_unless_same(file, to)) continue;
    // In a folder, the model's type would stand for a class with rules of its own.
    if (is_renamed) {
      lockstep::write_atomically(fs::path(folder) / "tokenizer_config.json",
                                 "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\"\n}\n");
    }
  }
  write_languages(languages, fs::path(folder) / "tokenizer_config.json");
}

}  // namespace texts
