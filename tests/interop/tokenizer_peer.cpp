#include <iostream>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.hpp"
#include "lockstep/tokenizers/tokenizer.hpp"
#include "lockstep/tokenizers/trainers.hpp"

// Does with a tokenizer what tokenizer_compare.py says, one JSON request a line, and prints one line for each
// result.

namespace {

using lockstep::Tokenizer;
using nlohmann::json;
namespace tokenizer = lockstep::tokenizer;

json printed(const tokenizer::Encoding& encoding) {
  auto offsets = json::array();
  for (const auto& place : encoding.offsets) offsets.push_back({place.begin, place.end});
  auto overflowing = json::array();
  for (const auto& part : encoding.overflowing) overflowing.push_back(printed(part));
  return {encoding.ids,   encoding.type_ids, encoding.attention_mask, encoding.special_tokens_mask,
          offsets,        encoding.word_ids, encoding.sequence_ids,   overflowing,
          encoding.tokens};
}

Tokenizer loaded(const json& request) {
  const std::string file = request.at("load");
  if (request.contains("merges")) {
    return Tokenizer::from_vocab(
        file, request.at("merges").get<std::string>(),
        {.add_prefix_space = request.at("prefix"), .trim_offsets = request.at("trim")});
  }
  if (request.contains("lowercase"))
    return Tokenizer::from_vocab(file, {.lowercase = request.at("lowercase")});
  return Tokenizer::from_file(file);
}

tokenizer::Side side(const json& settings) {
  return settings.at("direction") == "left" ? tokenizer::Side::left : tokenizer::Side::right;
}

std::optional<tokenizer::Truncation> truncation(const json& settings) {
  if (settings.is_null()) return std::nullopt;
  const auto strategy = settings.at("strategy");
  return tokenizer::Truncation{
      .max_length = settings.at("max_length"),
      .strategy = strategy == "longest_first" ? tokenizer::TruncationStrategy::longest_first
                  : strategy == "only_first"  ? tokenizer::TruncationStrategy::only_first
                                              : tokenizer::TruncationStrategy::only_second,
      .stride = settings.at("stride"),
      .side = side(settings)};
}

std::optional<tokenizer::Padding> padding(const json& settings) {
  if (settings.is_null()) return std::nullopt;
  tokenizer::Padding result{.length = std::nullopt,
                            .multiple_of = settings.at("pad_to_multiple_of"),
                            .side = side(settings),
                            .id = settings.at("pad_id"),
                            .type_id = settings.at("pad_type_id"),
                            .token = settings.at("pad_token")};
  if (!settings.at("length").is_null()) result.length = settings.at("length").get<std::size_t>();
  return result;
}

void encode(const Tokenizer& peer, const json& request) {
  const auto texts = request.at("encode").get<std::vector<std::string>>();
  const auto pairs = request.value("pairs", std::vector<std::string>());
  std::vector<tokenizer::TextInput> inputs;
  for (std::size_t place = 0; place < texts.size(); ++place) {
    inputs.push_back({.text = texts[place]});
    if (!pairs.empty()) inputs.back().pair = pairs[place];
  }
  const tokenizer::EncodeOptions options{
      .add_special_tokens = request.at("special"), .return_tokens = true, .threads = 2};
  for (const auto& encoding : peer.encode_batch(inputs, options)) std::cout << printed(encoding) << "\n";
}

/// One text: the tokenizer.json.
json trained(const json& request) {
  const auto options = request.at("options");
  const auto texts = request.at("train").get<std::vector<std::string>>();
  tokenizer::TokenizerTrainer trainer(request.at("template").get<std::string>());
  trainer.feed({texts.begin(), texts.end()}, 2);
  tokenizer::TrainerOptions how{.vocab_size = options.at("vocab_size")};
  how.min_frequency = options.value("min_frequency", how.min_frequency);
  how.special_tokens = options.value("special_tokens", how.special_tokens);
  how.initial_alphabet = options.value("initial_alphabet", how.initial_alphabet);
  if (options.contains("limit_alphabet")) how.limit_alphabet = options["limit_alphabet"];
  if (options.contains("max_token_length")) how.max_token_length = options["max_token_length"];
  if (options.contains("continuing_subword_prefix"))
    how.continuing_subword_prefix = options["continuing_subword_prefix"];
  if (options.contains("end_of_word_suffix")) how.end_of_word_suffix = options["end_of_word_suffix"];
  return trainer.train(how);
}

json pre_tokens(const Tokenizer& peer, const std::string& text) {
  auto words = json::array();
  for (const auto& [word, offsets] : peer.pre_tokenize(text))
    words.push_back({word, {offsets.begin, offsets.end}});
  return words;
}

void answer(std::optional<Tokenizer>& peer, const json& request) {
  if (request.contains("load")) {
    peer = loaded(request);
    std::cout << peer->vocab_size() << "\n";
  } else if (request.contains("encode")) {
    encode(*peer, request);
  } else if (request.contains("train")) {
    std::cout << trained(request) << "\n";
  } else if (request.contains("normalize")) {
    for (const std::string text : request.at("normalize")) std::cout << json(peer->normalize(text)) << "\n";
  } else if (request.contains("pre_tokenize")) {
    for (const std::string text : request.at("pre_tokenize")) std::cout << pre_tokens(*peer, text) << "\n";
  } else if (request.contains("decode")) {
    for (const auto& ids : request.at("decode")) {
      std::cout << json(peer->decode(ids, {.skip_special_tokens = request.at("skip")})) << "\n";
    }
  } else {
    peer = peer->with_truncation(truncation(request.at("truncation")))
               .with_padding(padding(request.at("padding")));
    std::cout << "null\n";
  }
}

}  // namespace

int main() {
  std::optional<Tokenizer> peer;
  for (std::string line; std::getline(std::cin, line);) {
    try {
      answer(peer, json::parse(line));
    } catch (const lockstep::Error& error) {
      std::cout << json({{"error", error.what()}}) << "\n";
    }
  }
}
