#include "bpe.hpp"
#include "lockstep/core/error.hpp"
#include "tokenizer_parts.hpp"
#include "word_piece.hpp"

namespace lockstep {
namespace tokenizer {
namespace {

Side read_side(const Node& node) {
  const auto side = node.text("direction", "Right");
  if (side == "Left") return Side::left;
  if (side == "Right") return Side::right;
  node.fail("the direction '" + side + "' is neither Left nor Right");
}

TruncationStrategy read_strategy(const Node& node) {
  const auto& strategy = node["strategy"].text();
  if (strategy == "LongestFirst") return TruncationStrategy::longest_first;
  if (strategy == "OnlyFirst") return TruncationStrategy::only_first;
  if (strategy == "OnlySecond") return TruncationStrategy::only_second;
  node.fail("the strategy '" + strategy + "' is not LongestFirst, OnlyFirst or OnlySecond");
}

/// "BatchLongest", or {"Fixed": length}.
std::optional<std::size_t> read_length(const Node& strategy) {
  if (!strategy.is_text()) return strategy["Fixed"].number();
  if (strategy.text() == "BatchLongest") return std::nullopt;
  strategy.fail("the strategy '" + strategy.text() + "' is neither BatchLongest nor Fixed");
}

void check_version(const Node& document) {
  const auto version = document.text("version", "1.0");
  if (version != "1.0") document.fail("the version '" + version + "' is not known: 1.0 is");
}

}  // namespace

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
                 .type_id = node->number("pad_type_id", 0)};
}

std::shared_ptr<const Pipeline> read_pipeline(const Node& document) {
  check_version(document);
  auto pipeline = std::make_shared<Pipeline>();
  if (const auto node = document.find("normalizer")) pipeline->normalizer = make_normalizer(*node);
  if (const auto node = document.find("pre_tokenizer")) pipeline->pre_tokenizer = PreTokenizer(*node);
  pipeline->model = make_model(document["model"], pipeline->pre_tokenizer.is_byte_level());
  if (const auto node = document.find("added_tokens")) {
    pipeline->added = AddedTokens(*node, pipeline->model->vocabulary(), pipeline->normalizer.get());
  }
  if (const auto node = document.find("post_processor")) pipeline->post_processor = PostProcessor(*node);
  if (const auto node = document.find("decoder")) pipeline->decoder = make_decoder(*node);
  return pipeline;
}

void check(const Truncation& truncation, const Pipeline& pipeline) {
  const auto added = pipeline.post_processor.added(false);
  const auto given = " (max_length " + std::to_string(truncation.max_length) + ", of which " +
                     std::to_string(added) + " are special tokens)";
  if (truncation.max_length < added) {
    throw UsageError("truncation leaves no room for the special tokens" + given + ".");
  }
  const auto room = truncation.max_length - added;
  if (truncation.stride > 0 && truncation.stride >= room) {
    throw UsageError("truncation needs a stride below the " + std::to_string(room) +
                     " tokens of a piece, not " + std::to_string(truncation.stride) + given + ".");
  }
}

}  // namespace tokenizer

Tokenizer Tokenizer::from_json(std::string_view json, const std::string& name) {
  const auto tree = tokenizer::parse_json(json, name);
  const tokenizer::Node document(tree, name);
  auto parts = std::make_shared<Parts>();
  parts->pipeline = tokenizer::read_pipeline(document);
  parts->truncation = tokenizer::read_truncation(document);
  parts->padding = tokenizer::read_padding(document);
  try {
    if (parts->truncation) tokenizer::check(*parts->truncation, *parts->pipeline);
  } catch (const UsageError& error) {
    document.fail(error.what());
  }
  return Tokenizer(std::move(parts));
}

Tokenizer Tokenizer::from_file(const std::filesystem::path& path) {
  return from_json(tokenizer::read_text_file(path), path.string());
}

}  // namespace lockstep
