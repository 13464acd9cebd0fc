#include <fmt/core.h>

#include "lockstep/core/error.hpp"
#include "tokenizers/document.hpp"
#include "tokenizers/tokenizer_parts.hpp"

namespace lockstep {
namespace tokenizer {
namespace {

Side read_side(const Node& node) {
  const auto side = node.text("direction", "Right");
  if (side == "Left") return Side::left;
  if (side == "Right") return Side::right;
  node.fail(fmt::format("the direction '{}' is neither Left nor Right", side));
}

TruncationStrategy read_strategy(const Node& node) {
  const auto& strategy = node["strategy"].text();
  if (strategy == "LongestFirst") return TruncationStrategy::longest_first;
  if (strategy == "OnlyFirst") return TruncationStrategy::only_first;
  if (strategy == "OnlySecond") return TruncationStrategy::only_second;
  node.fail(fmt::format("the strategy '{}' is not LongestFirst, OnlyFirst or OnlySecond", strategy));
}

/// "BatchLongest", or {"Fixed": length}.
std::optional<std::size_t> read_length(const Node& strategy) {
  if (!strategy.is_text()) return strategy["Fixed"].number();
  if (strategy.text() == "BatchLongest") return std::nullopt;
  strategy.fail(fmt::format("the strategy '{}' is neither BatchLongest nor Fixed", strategy.text()));
}

std::optional<Truncation> read_truncation(const Node& document) {
  const auto node = document.find("truncation");
  if (!node) return std::nullopt;
  return Truncation{.max_length = (*node)["max_length"].number(),
                    .strategy = read_strategy(*node),
                    .stride = node->number("stride", 0),
                    .side = read_side(*node)};
}

std::optional<Padding> read_padding(const Node& document) {
  const auto node = document.find("padding");
  if (!node) return std::nullopt;
  return Padding{.length = read_length((*node)["strategy"]),
                 .multiple_of = node->number("pad_to_multiple_of", 0),
                 .side = read_side(*node),
                 .id = (*node)["pad_id"].number(),
                 .type_id = node->number("pad_type_id", 0),
                 .token = node->text("pad_token", "[PAD]")};
}

std::shared_ptr<const Pipeline> read_pipeline(const Node& document, std::unique_ptr<const Model> model = {}) {
  auto pipeline = begin_pipeline(document, std::move(model));
  finish_pipeline(*pipeline, document);
  return pipeline;
}

/// An added token as written in files.
nlohmann::json added_token(const std::string& content, std::uint32_t id) {
  return {{"content", content}, {"id", id}, {"special", true}, {"normalized", false}};
}

/// The special tokens of BERT that the vocabulary has; [CLS] and [SEP] are required.
nlohmann::json bert_tokens(const Vocabulary& vocabulary, const std::string& file) {
  auto tokens = nlohmann::json::array();
  for (const char* token : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) {
    const auto id = vocabulary.id(token);
    if (id) tokens.push_back(added_token(token, *id));
    const bool needed = std::string_view(token) == "[CLS]" || std::string_view(token) == "[SEP]";
    if (!id && needed)
      throw DataError(fmt::format("'{}' is not a vocabulary of BERT: it has no '{}'.", file, token));
  }
  return tokens;
}

}  // namespace

}  // namespace tokenizer

Tokenizer Tokenizer::from_json(std::string_view json, const std::string& name) {
  const auto tree = tokenizer::parse_json(json, name);
  const tokenizer::Node document(tree, name);
  auto parts = std::make_shared<Parts>();
  parts->pipeline = tokenizer::read_pipeline(document);
  parts->truncation = tokenizer::read_truncation(document);
  parts->padding = tokenizer::read_padding(document);
  try {
    if (parts->truncation) tokenizer::check_truncation(*parts->truncation, *parts->pipeline);
  } catch (const UsageError& error) {
    document.fail(error.what());
  }
  return Tokenizer(std::move(parts));
}

Tokenizer Tokenizer::from_file(const std::filesystem::path& path) {
  return from_json(tokenizer::read_text_file(path), path.string());
}

Tokenizer Tokenizer::from_vocab(const std::filesystem::path& vocab_txt,
                                const tokenizer::BertOptions& options) {
  using tokenizer::WordPiece;
  const auto file = vocab_txt.string();
  auto model = std::make_unique<WordPiece>(
      tokenizer::read_vocabulary_lines(tokenizer::read_text_file(vocab_txt), file), WordPiece::Settings{},
      file);
  const auto& vocabulary = model->vocabulary();
  nlohmann::json document;
  document["added_tokens"] = tokenizer::bert_tokens(vocabulary, file);
  document["normalizer"] = {{"type", "BertNormalizer"},
                            {"clean_text", options.clean_text},
                            {"handle_chinese_chars", options.handle_chinese_chars},
                            {"strip_accents", options.strip_accents.value_or(options.lowercase)},
                            {"lowercase", options.lowercase}};
  document["pre_tokenizer"]["type"] = "BertPreTokenizer";
  document["post_processor"] = {{"type", "BertProcessing"},
                                {"cls", {"[CLS]", *vocabulary.id("[CLS]")}},
                                {"sep", {"[SEP]", *vocabulary.id("[SEP]")}}};
  document["decoder"]["type"] = "WordPiece";
  auto pipeline = tokenizer::read_pipeline(tokenizer::Node(document, file), std::move(model));
  return Tokenizer(std::make_shared<const Parts>(Parts{.pipeline = std::move(pipeline)}));
}

Tokenizer Tokenizer::from_vocab(const std::filesystem::path& vocab_json,
                                const std::filesystem::path& merges_txt,
                                const tokenizer::ByteLevelOptions& options) {
  const auto file = vocab_json.string();
  nlohmann::json document;
  document["model"] = {{"type", "BPE"}, {"merges", nlohmann::json::array()}};
  document["model"]["vocab"] = tokenizer::parse_json(tokenizer::read_text_file(vocab_json), file);
  for (auto& [left, right] :
       tokenizer::read_merge_lines(tokenizer::read_text_file(merges_txt), merges_txt.string())) {
    document["model"]["merges"].push_back(nlohmann::json::array({std::move(left), std::move(right)}));
  }
  document["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", options.add_prefix_space}};
  document["post_processor"] = {{"type", "ByteLevel"},
                                {"add_prefix_space", options.add_prefix_space},
                                {"trim_offsets", options.trim_offsets}};
  document["decoder"]["type"] = "ByteLevel";
  auto pipeline = tokenizer::read_pipeline(tokenizer::Node(document, file));
  return Tokenizer(std::make_shared<const Parts>(Parts{.pipeline = std::move(pipeline)}));
}

}  // namespace lockstep
