#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/tokenizers/tokenizer.hpp"

namespace lockstep {
namespace {

using nlohmann::json;
using tokenizer::Encoding;
using tokenizer::Side;

const std::string kFolder = LOCKSTEP_TOKENIZER_DIR "/";

Side side(const json& settings) { return settings.at("direction") == "left" ? Side::left : Side::right; }

std::optional<tokenizer::Truncation> truncation(const json& settings) {
  if (settings.is_null()) return std::nullopt;
  EXPECT_EQ(settings.at("strategy"), "longest_first");
  return tokenizer::Truncation{
      .max_length = settings.at("max_length"), .stride = settings.at("stride"), .side = side(settings)};
}

std::optional<tokenizer::Padding> padding(const json& settings) {
  if (settings.is_null()) return std::nullopt;
  return tokenizer::Padding{.multiple_of = settings.at("pad_to_multiple_of"),
                            .side = side(settings),
                            .id = settings.at("pad_id"),
                            .type_id = settings.at("pad_type_id")};
}

Encoding encoding(const json& lists) {
  Encoding result{.ids = lists[0],
                  .type_ids = lists[1],
                  .attention_mask = lists[2],
                  .special_tokens_mask = lists[3],
                  .offsets = {},
                  .word_ids = lists[5],
                  .sequence_ids = lists[6],
                  .tokens = {},
                  .overflowing = {}};
  for (const auto& place : lists[4]) result.offsets.push_back({place[0], place[1]});
  for (const auto& part : lists[7]) result.overflowing.push_back(encoding(part));
  return result;
}

struct Case {
  Tokenizer peer;
  std::string text;
  std::optional<std::string> pair;
  bool special;
  Encoding expected;
  std::string decoded;
};

std::vector<Case> cases() {
  std::map<std::string, Tokenizer> loaded;
  std::vector<Case> result;
  std::ifstream file(kFolder + "golden.jsonl");
  for (std::string line; std::getline(file, line);) {
    const auto row = json::parse(line);
    const std::string name = row[0];
    const auto found = loaded.try_emplace(name, Tokenizer::from_file(kFolder + name)).first;
    auto peer = found->second.with_truncation(truncation(row[1])).with_padding(padding(row[2]));
    std::optional<std::string> pair;
    if (!row[4].is_null()) pair = row[4];
    result.push_back({peer, row[3], pair, row[5], encoding(row[6]), row[7]});
  }
  return result;
}

TEST(TokenizerGolden, EncodesAndDecodesAsThePythonPackage) {
  const auto all = cases();
  ASSERT_GT(all.size(), 100U);
  for (const auto& one : all) {
    const tokenizer::EncodeOptions options{.add_special_tokens = one.special};
    const auto got =
        one.pair ? one.peer.encode(one.text, *one.pair, options) : one.peer.encode(one.text, options);
    EXPECT_TRUE(got == one.expected) << one.text;
    EXPECT_EQ(one.peer.decode(got.ids), one.decoded) << one.text;
  }
}

TEST(TokenizerGolden, ABatchIsItsTextsInOrderWhateverTheThreads) {
  const auto peer = Tokenizer::from_file(kFolder + "bert.json");
  std::vector<std::string> texts;
  for (int number = 0; number < 300; ++number)
    texts.push_back("text number " + std::to_string(number * 7919));
  const auto one = peer.encode_batch(texts, {.threads = 1});
  ASSERT_EQ(one.size(), texts.size());
  for (std::size_t place = 0; place < texts.size(); ++place) EXPECT_EQ(one[place], peer.encode(texts[place]));
  for (const int threads : {0, 2, 7}) EXPECT_EQ(peer.encode_batch(texts, {.threads = threads}), one);
}

TEST(TokenizerGolden, NamesAndNumbersOfTokens) {
  const auto peer = Tokenizer::from_file(kFolder + "bert.json");
  EXPECT_EQ(peer.token_to_id("[CLS]"), 2);
  EXPECT_EQ(peer.id_to_token(2), "[CLS]");
  EXPECT_EQ(peer.token_to_id("no such token"), std::nullopt);
  EXPECT_EQ(peer.id_to_token(-1), std::nullopt);
  EXPECT_EQ(peer.id_to_token(1 << 30), std::nullopt);
  EXPECT_EQ(peer.id_to_token(static_cast<std::int64_t>(peer.vocab_size())), std::nullopt);
}

}  // namespace
}  // namespace lockstep
