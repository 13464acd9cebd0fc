#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lockstep/core/error.hpp"
#include "lockstep/tokenizers/tokenizer.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using nlohmann::json;

json word_piece() {
  return {{"model", {{"type", "WordPiece"}, {"vocab", {{"[UNK]", 0}, {"ab", 1}, {"##c", 2}, {"[CLS]", 3}}}}},
          {"pre_tokenizer", {{"type", "WhitespaceSplit"}}}};
}

/// The document with a value set at a place such as "/model/type".
json with(json document, const char* place, const json& value) {
  document[json::json_pointer(place)] = value;
  return document;
}

Tokenizer loaded(const json& document) { return Tokenizer::from_json(document.dump(), "made.json"); }

TEST(TokenizerFile, ReadsASmallOne) {
  const auto peer = loaded(word_piece());
  EXPECT_EQ(peer.encode("abcc abx ab").ids, (std::vector<std::int64_t>{1, 2, 2, 0, 1}));
  EXPECT_EQ(peer.vocab_size(), 4U);
}

TEST(TokenizerFile, RefusesWhatIsNotSupportedByName) {
  const auto refuse = [](const char* place, const json& value, const char* name) {
    EXPECT_THROWS(loaded(with(word_piece(), place, value)), DataError, "made.json", name);
  };
  refuse("/model/type", "Odd", "the model 'Odd'");
  refuse("/normalizer", {{"type", "Odd"}}, "the normalizer 'Odd'");
  refuse("/pre_tokenizer", {{"type", "Odd"}}, "the pre-tokenizer 'Odd'");
  refuse("/pre_tokenizer", {{"type", "FixedLength"}, {"length", 0}}, "FixedLength is 0");
  refuse("/post_processor", {{"type", "Odd"}}, "the post-processor 'Odd'");
  refuse("/decoder", {{"type", "Odd"}}, "the decoder 'Odd'");
  refuse("/version", "2.0", "the version '2.0'");
}

json split_by(const char* expression) {
  return {
      {"type", "Split"}, {"pattern", {{"Regex", expression}}}, {"behavior", "Isolated"}, {"invert", false}};
}

TEST(TokenizerFile, NamesTheRegularExpressionThatCannotBeUsed) {
  EXPECT_THROWS(loaded(with(word_piece(), "/pre_tokenizer", split_by("a(b"))), DataError, "'a(b'",
                "pre_tokenizer.pattern.Regex", "cannot be used");
}

TEST(TokenizerFile, AnExpressionThatExplodesEndsAtALimitWithItsName) {
  const auto peer = loaded(with(word_piece(), "/pre_tokenizer", split_by("(x+x+)+(?=y)\\1")));
  EXPECT_THROWS(peer.encode(std::string(64, 'x')), DataError, "'(x+x+)+(?=y)\\1'",
                "pre_tokenizer.pattern.Regex", "too many steps", "limit");
}

TEST(TokenizerFile, NamesThePlaceOfWhatIsWrong) {
  const auto refuse = [](const char* place, const json& value, const char* where, const char* what) {
    EXPECT_THROWS(loaded(with(word_piece(), place, value)), DataError, "made.json", where, what);
  };
  refuse("/model/vocab/ab", "x", "model.vocab.ab", "an integer");
  refuse("/model/vocab/ab", -1, "model.vocab.ab", "-1");
  refuse("/model/vocab/ab", 0, "model.vocab", "have the same id 0");
  refuse("/model/vocab/ab", 2'000'000'000, "model.vocab", "2000000000");
  refuse("/model/vocab", json::array(), "model.vocab", "expected an object");
  refuse("/model/unk_token", "[NO]", "[NO]", "token of unknown words");
  refuse("/added_tokens", {{{"id", 9}, {"content", "new"}}}, "added_tokens[0]", "next id");
  refuse("/added_tokens", {{{"id", 2}, {"content", "ab"}}}, "added_tokens[0]", "the vocabulary gives it 1");
  refuse("/added_tokens", {{{"id", 4}, {"content", "n"}}, {{"id", 4}, {"content", "m"}}}, "added_tokens[1]",
         "the id of another");
  refuse("/post_processor",
         {{"type", "TemplateProcessing"},
          {"single", {{{"SpecialToken", {{"id", "[CLS]"}, {"type_id", 0}}}}}},
          {"pair", json::array()},
          {"special_tokens", {{"[CLS]", {{"id", "[CLS]"}, {"ids", {3}}, {"tokens", json::array()}}}}}},
         "post_processor", "as many tokens as ids");
  refuse("/truncation", {{"max_length", 4}, {"strategy", "LongestFirst"}, {"stride", 4}}, "made.json",
         "stride");
}

TEST(TokenizerFile, RefusesBrokenJson) {
  const auto text = word_piece().dump();
  for (std::size_t end = 0; end < text.size(); ++end) {
    EXPECT_THROW(Tokenizer::from_json(text.substr(0, end), "cut.json"), DataError) << end;
  }
  EXPECT_THROWS(Tokenizer::from_json("{\"a\":1,\"a\":2}", "x.json"), DataError, "x.json", "'a' twice");
  EXPECT_THROWS(Tokenizer::from_json(std::string(100'000, '['), "x.json"), DataError, "64 levels deep");
  EXPECT_THROWS(Tokenizer::from_json("\"\xFF\"", "x.json"), DataError, "not valid UTF-8", "byte 1");
  EXPECT_THROWS(Tokenizer::from_file("/no/such/tokenizer.json"), DataError, "/no/such/tokenizer.json");
}

TEST(TokenizerFile, MergesNeedTheirTokens) {
  testing::TemporaryFolder folder;
  testing::write_bytes(folder / "vocab.json", "{\"a\":0}");
  testing::write_bytes(folder / "merges.txt", "#version: 0.2\na b\n");
  EXPECT_THROWS(Tokenizer::from_vocab(folder / "vocab.json", folder / "merges.txt"), DataError, "vocab.json",
                "merge 0", "needs the token");
  testing::write_bytes(folder / "merges.txt", "a b\na b c\n");
  EXPECT_THROWS(Tokenizer::from_vocab(folder / "vocab.json", folder / "merges.txt"), DataError, "merges.txt",
                "line 2");
}

/// As t5-small, xlm-roberta-base and gpt2 were published.
TEST(TokenizerFile, AModelWithoutATypeIsWhatItsFieldsMakeIt) {
  using Ids = std::vector<std::int64_t>;
  const auto ids = [](const json& model, const char* text) {
    return loaded({{"model", model}, {"pre_tokenizer", {{"type", "WhitespaceSplit"}}}}).encode(text).ids;
  };
  const json words = {{"u", 0}, {"a", 1}, {"b", 2}, {"ab", 3}, {"##b", 4}};
  const auto piece = [](const char* text, double score) { return json::array({text, score}); };
  const json pieces = json::array({piece("u", -9), piece("a", -2), piece("ab", -1)});
  EXPECT_EQ(ids({{"unk_id", 0}, {"vocab", pieces}}, "ab ac"), (Ids{2, 1, 0}));
  EXPECT_EQ(ids({{"vocab", words}, {"merges", {"a b"}}}, "ab b"), (Ids{3, 2}));
  const json greedy = {{"vocab", words},
                       {"unk_token", "u"},
                       {"continuing_subword_prefix", "##"},
                       {"max_input_chars_per_word", 9}};
  EXPECT_EQ(ids(greedy, "abb c"), (Ids{3, 4, 0}));
  EXPECT_EQ(ids({{"vocab", words}, {"unk_token", "u"}}, "ab abb"), (Ids{3, 0}));
  EXPECT_THROWS(ids({{"vocab", words}}, "ab"), DataError, "model", "no type", "unk_token");
}

TEST(TokenizerFile, AWordOfNoTokenNeedsTheUnknownOne) {
  const auto peer =
      loaded({{"model", {{"type", "WordLevel"}, {"unk_token", "[UNK]"}, {"vocab", {{"ab", 0}}}}},
              {"pre_tokenizer", {{"type", "WhitespaceSplit"}}}});
  EXPECT_EQ(peer.encode("ab ab").ids, (std::vector<std::int64_t>{0, 0}));
  EXPECT_THROWS(peer.encode("ab c"), DataError, "made.json", "'c'", "'[UNK]'");
}

TEST(TokenizerFile, ReadsABertVocabulary) {
  testing::TemporaryFolder folder;
  testing::write_bytes(folder / "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\nna\n##ive\r\n!\n");
  const auto peer = Tokenizer::from_vocab(folder / "vocab.txt");
  const auto encoding = peer.encode("Na\xC3\xAFve!", "x");
  EXPECT_EQ(encoding.ids, (std::vector<std::int64_t>{2, 4, 5, 6, 3, 1, 3}));
  EXPECT_EQ(encoding.type_ids, (std::vector<std::int64_t>{0, 0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(peer.decode(encoding.ids, {.skip_special_tokens = true}), "naive!");
  testing::write_bytes(folder / "vocab.txt", "[UNK]\n[CLS]\nx\nx\n");
  EXPECT_THROWS(Tokenizer::from_vocab(folder / "vocab.txt"), DataError, "vocab.txt", "line 4", "two ids");
}

TEST(TokenizerText, IllFormedTextIsRefusedWithItsPlace) {
  const auto peer = loaded(word_piece());
  EXPECT_THROWS(peer.encode("ab \xC3("
                            "x"),
                DataError, "byte 3");
  EXPECT_THROWS(peer.encode("ab \xED\xA0\x80"), DataError, "byte 3");
  EXPECT_THROWS(peer.encode_batch(std::vector<std::string>{"ab", "\xF5"}), DataError, "input 1", "byte 0");
}

TEST(TokenizerText, TokensAreWhatWasFoundInTheText) {
  using Tokens = std::vector<std::string>;
  const auto peer =
      loaded(with(word_piece(), "/added_tokens", {{{"id", 4}, {"content", "<mask>"}, {"lstrip", true}}}));
  EXPECT_TRUE(peer.encode("ab").tokens.empty());
  const tokenizer::EncodeOptions options{.return_tokens = true};
  EXPECT_EQ(peer.encode("ab  <mask> abc zz", options).tokens,
            (Tokens{"ab", "  <mask>", "ab", "##c", "[UNK]"}));
  const auto padded = peer.with_truncation({{.max_length = 2}})
                          .with_padding({{.length = 3, .side = tokenizer::Side::left, .token = "-"}});
  const auto cut = padded.encode("abc <mask>", options);
  EXPECT_EQ(cut.tokens, (Tokens{"-", "ab", "##c"}));
  ASSERT_EQ(cut.overflowing.size(), 1U);
  EXPECT_EQ(cut.overflowing[0].tokens, (Tokens{"-", "-", " <mask>"}));
  EXPECT_EQ(padded.encode("", options).tokens, (Tokens{"-", "-", "-"}));
}

/// The package's results.
TEST(TokenizerText, SpacesGoToOneOfTwoAddedTokensThatTakeThem) {
  const auto added = [](const char* content, int id, const char* side) {
    return json{{"id", id}, {"content", content}, {side, true}, {"normalized", false}};
  };
  const auto peer =
      loaded(with(word_piece(), "/added_tokens", {added("<s>", 4, "rstrip"), added(" ", 5, "lstrip")}));
  const auto encoding = peer.encode("\xC3\xA9<s> ");
  EXPECT_EQ(encoding.ids, (std::vector<std::int64_t>{0, 4}));
  EXPECT_EQ(encoding.offsets.back().end, 5U);
}

TEST(TokenizerText, EqualSegmentationsAreThoseOfThePackage) {
  const json scores =
      json::array({json::array({"<unk>", 0.0}), json::array({"a", -9.698997306463173}),
                   json::array({"aaa", -2.7805505299793296}), json::array({"b", -3.0123284804704786}),
                   json::array({"c", -2.6888734369874725})});
  const auto peer = loaded({{"model", {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", scores}}}});
  EXPECT_EQ(peer.encode("abcaaaa").ids, (std::vector<std::int64_t>{1, 3, 4, 2, 1}));
}

TEST(TokenizerText, ClassesOfExpressionsAreThoseOfThePackage) {
  const auto words = [](const char* expression, const char* text) {
    return loaded(with(word_piece(), "/pre_tokenizer", split_by(expression))).pre_tokenize(text).size();
  };
  EXPECT_EQ(words("[[:punct:]]", "a+b=c <d> $5 e^2"), 13U);
  EXPECT_EQ(words("[^[:^punct:]]", "a+b=c <d> $5 e^2"), 13U);
  EXPECT_EQ(words("[:punct:]+", "a:punct:b"), 3U) << "letters and a colon, outside of brackets";
  // A digit of Unicode 15.
  EXPECT_EQ(words("\\d", "a\xF0\x9E\x93\xB0z"), 3U);
  EXPECT_EQ(words("[\\D]+", "a\xF0\x9E\x93\xB0z"), 3U);
}

TEST(TokenizerText, TruncationThatCannotBeIsRefused) {
  const auto peer = loaded(word_piece());
  EXPECT_THROWS(peer.with_truncation({{.max_length = 2, .stride = 2}}), UsageError, "stride below");
  const auto second =
      peer.with_truncation({{.max_length = 1, .strategy = tokenizer::TruncationStrategy::only_second}});
  EXPECT_THROWS(second.encode("ab ab"), UsageError, "only one text");
  EXPECT_THROWS(second.encode("ab ab ab", "ab"), UsageError, "needs to take 3");
}

}  // namespace
}  // namespace lockstep
