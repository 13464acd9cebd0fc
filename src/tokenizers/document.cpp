#include "tokenizers/document.hpp"

#include <fmt/core.h>

#include "lockstep/core/error.hpp"

namespace lockstep::tokenizer {
namespace {

void check_version(const Node& document) {
  const auto version = document.text("version", "1.0");
  if (version != "1.0")
    document.fail(fmt::format("the version '{}' is not supported: expected 1.0", version));
}

}  // namespace

std::shared_ptr<Pipeline> begin_pipeline(const Node& document, std::unique_ptr<const Model> model) {
  check_version(document);
  auto pipeline = std::make_shared<Pipeline>();
  auto& words = pipeline->pre_tokenizer;
  if (const auto node = document.find("normalizer")) pipeline->normalizer = make_normalizer(*node);
  if (const auto node = document.find("pre_tokenizer")) words = PreTokenizer(*node);
  if (!model) {
    const auto node = document["model"];
    if (words.is_byte_level() && !has_byte_level(node)) words.show_bytes();
    model = make_model(node, words.is_byte_level());
  }
  pipeline->model = std::move(model);
  return pipeline;
}

void finish_pipeline(Pipeline& pipeline, const Node& document) {
  if (const auto node = document.find("added_tokens")) {
    pipeline.added = AddedTokens(*node, pipeline.model->vocabulary(), pipeline.normalizer.get());
  }
  if (const auto node = document.find("post_processor")) pipeline.post_processor = PostProcessor(*node);
  if (const auto node = document.find("decoder")) pipeline.decoder = make_decoder(*node);
}

Merges read_merge_lines(std::string_view text, const std::string& file) {
  Merges merges;
  std::size_t number = 0;
  for (const auto line : lines_of(text)) {
    ++number;
    if (line.starts_with("#version")) continue;
    auto merge = split_merge(line);
    if (!merge) {
      throw DataError(fmt::format(
          "'{}' is not a valid list of merges: line {} needs two tokens with a blank between them.", file,
          number));
    }
    merges.push_back(*std::move(merge));
  }
  return merges;
}

}  // namespace lockstep::tokenizer
