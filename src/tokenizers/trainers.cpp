#include "lockstep/tokenizers/trainers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "core/json_text.hpp"
#include "lockstep/core/error.hpp"
#include "tokenizers/byte_alphabet.hpp"
#include "tokenizers/encoding.hpp"
#include "tokenizers/json_file.hpp"
#include "tokenizers/merge_learner.hpp"
#include "tokenizers/model.hpp"
#include "tokenizers/normalizer.hpp"
#include "tokenizers/pre_tokenizer.hpp"
#include "tokenizers/utf8.hpp"

namespace lockstep::tokenizer {
namespace {

using nlohmann::ordered_json;
using Counts = std::unordered_map<std::string, std::uint64_t>;

void check_trainer_options(const TrainerOptions& options) {
  std::set<std::string> seen;
  for (const auto& token : options.special_tokens) {
    if (token.empty()) throw UsageError("special_tokens: a token is empty");
    if (!seen.insert(token).second)
      throw UsageError(fmt::format("special_tokens: '{}' is given twice", token));
  }
}

ordered_json special_token(const std::string& content, std::size_t id) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

}  // namespace

/// How texts are split into words, and the number of occurrences of each word.
struct TokenizerTrainer::Parts {
  ordered_json document;
  std::unique_ptr<const Normalizer> normalizer;
  PreTokenizer pre_tokenizer;
  bool is_word_piece = false;
  Counts words;

  /// `number` is that of the text, from 0.
  void count(std::string_view text, std::int64_t number, NormalizedString& normalized, SplitText& split,
             Counts& counts) const {
    const auto check = check_utf8(text);
    if (check.valid != text.size()) require_utf8(text, fmt::format("text {}", number + 1));
    std::vector<std::uint32_t> begins;
    Stretch whole = numbered(text, check.characters, begins);
    if (normalizer) {
      normalizer->normalize(text, 0, normalized);
      whole = normalized.stretch();
    }
    if (whole.text.empty()) return;
    pre_tokenizer.split(whole, split);
    for (const auto& word : split.words)
      ++counts[std::string(split.text.text.substr(word.begin, word.end - word.begin))];
  }
};

TokenizerTrainer::TokenizerTrainer(const std::string& json, const std::string& name)
    : parts_(std::make_unique<Parts>()) {
  const auto tree = parse_json(json, name);
  const Node document(tree, name);
  if (const auto node = document.find("normalizer")) parts_->normalizer = make_normalizer(*node);
  if (const auto node = document.find("pre_tokenizer")) parts_->pre_tokenizer = PreTokenizer(*node);
  const auto model = document["model"];
  const auto type = model_type(model);
  if (type != "BPE" && type != "WordPiece")
    model.fail(fmt::format("a model of type '{}' cannot be trained: BPE and WordPiece can", type));
  parts_->is_word_piece = type == "WordPiece";
  parts_->document = ordered_json::parse(json);
}

TokenizerTrainer::TokenizerTrainer(TokenizerTrainer&&) noexcept = default;
TokenizerTrainer& TokenizerTrainer::operator=(TokenizerTrainer&&) noexcept = default;
TokenizerTrainer::~TokenizerTrainer() = default;

void TokenizerTrainer::feed(const std::vector<std::string_view>& texts, int threads, std::int64_t fed) {
  std::vector<Counts> all;
  std::mutex mutex;
  parallel_for(texts.size(), threads, [&](std::size_t begin, std::size_t end) {
    NormalizedString normalized;
    SplitText split;
    Counts counts;
    for (std::size_t i = begin; i < end; ++i)
      parts_->count(texts[i], fed + static_cast<std::int64_t>(i), normalized, split, counts);
    const std::lock_guard lock(mutex);
    if (all.empty()) return all.push_back(std::move(counts));
    for (const auto& [word, count] : counts) all.front()[word] += count;
  });
  for (const auto& counts : all)
    for (const auto& [word, count] : counts) parts_->words[word] += count;
}

std::string TokenizerTrainer::train(TrainerOptions options) const {
  check_trainer_options(options);
  if (parts_->words.empty()) throw UsageError("a tokenizer cannot be trained: the texts have no words");
  ordered_json document = parts_->document;
  auto& model = document["model"];
  if (parts_->is_word_piece && !options.continuing_subword_prefix)
    options.continuing_subword_prefix = model.value("continuing_subword_prefix", "##");
  std::vector<CountedWord> words;
  for (const auto& [word, count] : parts_->words)
    words.emplace_back(written(word, parts_->pre_tokenizer.is_byte_level()), count);
  std::sort(words.begin(), words.end());
  const LearntMerges learnt = learn_merges(words, options);
  if (const auto first = learnt.tokens.size(); learnt.merges.empty() && first > options.vocab_size) {
    throw UsageError(fmt::format(
        "vocab_size is {}, but special tokens and single characters are {} already: give at least "
        "that, or a limit_alphabet",
        options.vocab_size, first));
  }

  ordered_json vocabulary = ordered_json::object(), merges = ordered_json::array();
  // Not by operator[], which searches all previous names.
  auto& entries = vocabulary.get_ref<ordered_json::object_t&>();
  for (std::size_t id = 0; id < learnt.tokens.size(); ++id)
    static_cast<ordered_json::object_t::Container&>(entries).emplace_back(learnt.tokens[id], id);
  for (const auto& [left, right] : learnt.merges)
    merges.push_back({learnt.tokens[left], learnt.tokens[right]});
  model["vocab"] = std::move(vocabulary);
  if (options.continuing_subword_prefix)
    model["continuing_subword_prefix"] = *options.continuing_subword_prefix;
  if (!parts_->is_word_piece) {
    model["merges"] = std::move(merges);
    if (options.end_of_word_suffix) model["end_of_word_suffix"] = *options.end_of_word_suffix;
  }
  auto added = ordered_json::array();
  for (std::size_t id = 0; id < options.special_tokens.size(); ++id)
    added.push_back(special_token(options.special_tokens[id], id));
  document["added_tokens"] = std::move(added);
  return json_text(document, 2);
}

std::string byte_level_bpe(bool add_prefix_space) {
  ordered_json document = {{"version", "1.0"},
                           {"truncation", nullptr},
                           {"padding", nullptr},
                           {"added_tokens", ordered_json::array()},
                           {"normalizer", nullptr}};
  const auto byte_level = [](bool prefix, bool trims) {
    return ordered_json{
        {"type", "ByteLevel"}, {"add_prefix_space", prefix}, {"trim_offsets", trims}, {"use_regex", true}};
  };
  document["pre_tokenizer"] = byte_level(add_prefix_space, true);
  document["post_processor"] = byte_level(true, false);
  document["decoder"] = byte_level(true, true);
  document["model"] = {{"type", "BPE"},
                       {"dropout", nullptr},
                       {"unk_token", nullptr},
                       {"continuing_subword_prefix", nullptr},
                       {"end_of_word_suffix", nullptr},
                       {"fuse_unk", false},
                       {"byte_fallback", false},
                       {"ignore_merges", false},
                       {"vocab", ordered_json::object()},
                       {"merges", ordered_json::array()}};
  return json_text(document);
}

std::string bert_word_piece(bool lowercase) {
  ordered_json document = {{"version", "1.0"},
                           {"truncation", nullptr},
                           {"padding", nullptr},
                           {"added_tokens", ordered_json::array()}};
  document["normalizer"] = {{"type", "BertNormalizer"},
                            {"clean_text", true},
                            {"handle_chinese_chars", true},
                            {"strip_accents", nullptr},
                            {"lowercase", lowercase}};
  document["pre_tokenizer"] = {{"type", "BertPreTokenizer"}};
  document["post_processor"] = nullptr;
  document["decoder"] = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
  document["model"] = {{"type", "WordPiece"},
                       {"unk_token", "[UNK]"},
                       {"continuing_subword_prefix", "##"},
                       {"max_input_chars_per_word", 100},
                       {"vocab", ordered_json::object()}};
  return json_text(document);
}

std::vector<std::string> byte_level_alphabet() {
  std::vector<char32_t> codes(byte_characters().begin(), byte_characters().end());
  std::sort(codes.begin(), codes.end());
  std::vector<std::string> alphabet;
  for (const auto code : codes) append_utf8(alphabet.emplace_back(), code);
  return alphabet;
}

}  // namespace lockstep::tokenizer
