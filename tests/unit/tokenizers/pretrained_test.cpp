#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.hpp"
#include "lockstep/tokenizers/tokenizer.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using nlohmann::json;
using tokenizer::Encoding;
using tokenizer::PretrainedOptions;
using tokenizer::Side;

std::vector<json> rows() {
  std::vector<json> result;
  std::ifstream file(LOCKSTEP_PRETRAINED_GOLDEN);
  for (std::string line; std::getline(file, line);) result.push_back(json::parse(line));
  return result;
}

/// Writes a row's files; one that an earlier row has too is that row's.
void write_files(const json& row, const std::vector<json>& all, const testing::TemporaryFolder& folder) {
  for (const auto& [name, text] : row.at("files").items()) {
    const json& content = text.is_number() ? all[text.get<std::size_t>()].at("files").at(name) : text;
    testing::write_bytes(folder / name, content.get<std::string>());
  }
}

PretrainedOptions options_of(const json& given) {
  PretrainedOptions options;
  if (given.contains("src_lang")) options.src_lang = given["src_lang"];
  if (given.contains("tgt_lang")) options.tgt_lang = given["tgt_lang"];
  if (given.contains("add_bos_token")) options.add_bos_token = given["add_bos_token"];
  if (given.contains("add_eos_token")) options.add_eos_token = given["add_eos_token"];
  if (given.contains("add_prefix_space")) options.add_prefix_space = given["add_prefix_space"];
  if (given.contains("do_lower_case")) options.do_lower_case = given["do_lower_case"];
  if (given.contains("special_tokens")) options.special_tokens = given["special_tokens"];
  return options;
}

const char* name_of(Side side) { return side == Side::left ? "left" : "right"; }

json settings_of(const Tokenizer& peer) {
  const auto& settings = peer.settings();
  return {{"class", settings.tokenizer_class},
          {"model_max_length", settings.model_max_length ? json(*settings.model_max_length) : json()},
          {"padding_side", name_of(settings.padding_side)},
          {"truncation_side", name_of(settings.truncation_side)},
          {"model_input_names", settings.model_input_names},
          {"special_tokens", settings.special_tokens},
          {"src_lang", settings.src_lang},
          {"tgt_lang", settings.tgt_lang}};
}

/// [text, pair, special tokens or not, ids, types, special tokens mask, offsets], as the file has them.
json encoded(const Tokenizer& peer, const json& given) {
  const tokenizer::EncodeOptions options{.add_special_tokens = given[2]};
  const std::string text = given[0];
  const Encoding got = given[1].is_null() ? peer.encode(text, options)
                                          : peer.encode(text, given[1].get<std::string>(), options);
  auto offsets = json::array();
  for (const auto& [begin, end] : got.offsets) offsets.push_back({begin, end});
  return {given[0], given[1], given[2], got.ids, got.type_ids, got.special_tokens_mask, offsets};
}

void compare(const json& row, const Tokenizer& peer) {
  EXPECT_EQ(peer.vocab_size(), row.at("size").get<std::size_t>());
  EXPECT_EQ(settings_of(peer), row.at("settings"));
  EXPECT_FALSE(peer.truncation());
  EXPECT_FALSE(peer.padding());
  for (const auto& one : row.at("texts")) EXPECT_EQ(encoded(peer, one), one);
  for (const auto& one : row.at("targets")) {
    EXPECT_EQ(json(peer.for_targets().encode(one[0].get<std::string>()).ids), one[1]) << one[0];
  }
  for (const auto& one : row.at("decoded")) {
    const std::vector<std::int64_t> ids = one[0];
    EXPECT_EQ(peer.decode(ids), one[1].get<std::string>());
    EXPECT_EQ(peer.decode(ids, {.skip_special_tokens = false}), one[2].get<std::string>());
  }
  EXPECT_EQ(peer.special_token_id("pad_token").has_value(), row.contains("padded"));
  if (!row.contains("padded")) return;
  const auto padded =
      peer.with_padding({{.side = peer.settings().padding_side, .id = *peer.special_token_id("pad_token")}});
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < 3; ++i) texts.push_back(row.at("texts")[i][0]);
  auto ids = json::array();
  for (const auto& encoding : padded.encode_batch(texts)) ids.push_back(encoding.ids);
  EXPECT_EQ(ids, row.at("padded")[0]);
}

TEST(TokenizerPretrained, IsWhatAutoTokenizerMakesOfPublishedFolders) {
  const auto all = rows();
  ASSERT_GT(all.size(), 40U);
  for (const auto& row : all) {
    SCOPED_TRACE(row.at("name").get<std::string>());
    const testing::TemporaryFolder folder;
    write_files(row, all, folder);
    const auto options = options_of(row.at("options"));
    if (!row.contains("error")) {
      compare(row, Tokenizer::from_pretrained(folder.path(), options));
      continue;
    }
    try {
      Tokenizer::from_pretrained(folder.path(), options);
      ADD_FAILURE() << "no error";
    } catch (const DataError& error) {
      const std::string what = error.what();
      EXPECT_EQ(what.find('\n'), std::string::npos);
      for (const std::string part : row["error"]) EXPECT_NE(what.find(part), std::string::npos) << what;
    }
  }
}

const char* const kWords = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nab\n##c\n";

TEST(TokenizerPretrained, NamesTheLineOfPythonForASentencePieceFile) {
  const testing::TemporaryFolder folder;
  testing::write_bytes(folder / "config.json", R"({"model_type": "t5"})");
  testing::write_bytes(folder / "spiece.model", "\n\x05");
  EXPECT_THROWS(Tokenizer::from_pretrained(folder.path()), DataError, "spiece.model",
                "python3 -c \"from transformers import AutoTokenizer; AutoTokenizer.from_pretrained('" +
                    folder.path().string() + "').save_pretrained('");
}

TEST(TokenizerPretrained, NamesFileAndFieldOfWhatIsWrong) {
  const auto refuse = [](const char* file, const char* content, const auto&... parts) {
    const testing::TemporaryFolder folder;
    testing::write_bytes(folder / "vocab.txt", kWords);
    testing::write_bytes(folder / "config.json", R"({"model_type": "bert"})");
    testing::write_bytes(folder / file, content);
    EXPECT_THROWS(Tokenizer::from_pretrained(folder.path()), DataError, file, parts...);
  };
  refuse("tokenizer_config.json", R"({"do_lower_case": "yes"})", "do_lower_case", "true or false");
  refuse("tokenizer_config.json", R"({"padding_side": "up"})", "padding_side", "'up'");
  refuse("tokenizer_config.json", R"({"model_max_length": "long"})", "model_max_length", "a number");
  refuse("tokenizer_config.json", R"({"model_max_length": -1})", "model_max_length", "negative");
  refuse("tokenizer_config.json", R"({"pad_token": 3})", "pad_token", "expected an object");
  refuse("tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "a"}}})",
         "added_tokens_decoder", "'x'");
  refuse("tokenizer_config.json", R"({"added_tokens_decoder": {"0": {"content": "new"}}})",
         "added_tokens_decoder", "'new'", "id 0");
  refuse("tokenizer_config.json", R"({"split_special_tokens": 1})", "split_special_tokens", "true or false");
  refuse("tokenizer_config.json", "[]", "expected an object");
  refuse("tokenizer_config.json", "{", "not valid JSON");
  refuse("special_tokens_map.json", R"({"pad_token": 3})", "pad_token", "expected a text");
  refuse("added_tokens.json", R"({"ab": 17})", "'ab'", "17");
  refuse("added_tokens.json", R"({"ab": "x"})", "ab", "integer");
  refuse("config.json", R"({"model_type": 1})", "model_type", "expected a text");
}

TEST(TokenizerPretrained, RefusesClassesByName) {
  const auto refuse = [](const char* config, const char* tokenizer_config, const auto&... parts) {
    const testing::TemporaryFolder folder;
    testing::write_bytes(folder / "vocab.txt", kWords);
    testing::write_bytes(folder / "config.json", config);
    testing::write_bytes(folder / "tokenizer_config.json", tokenizer_config);
    EXPECT_THROWS(Tokenizer::from_pretrained(folder.path()), DataError, folder.path().string(), parts...);
  };
  refuse(R"({"model_type": "esm"})", "{}", "EsmTokenizer", "BertTokenizer");
  refuse(R"({"model_type": "bert"})", R"({"tokenizer_class": "ByT5Tokenizer"})", "ByT5Tokenizer");
  refuse(R"({"model_type": "odd"})", R"({"auto_map": {"AutoTokenizer": ["odd.OddTokenizer", null]}})",
         "auto_map");
}

TEST(TokenizerPretrained, LanguagesAreForTokenizersThatHaveThem) {
  const testing::TemporaryFolder folder;
  testing::write_bytes(folder / "vocab.txt", kWords);
  EXPECT_THROWS(Tokenizer::from_pretrained(folder.path(), {.src_lang = "eng_Latn"}), UsageError, "src_lang",
                "BertTokenizer");
  EXPECT_THROWS(Tokenizer::from_pretrained(folder.path(), {.special_tokens = {{"pad", "[PAD]"}}}), UsageError,
                "'pad'", "pad_token");
}

/// The folder of a row of the goldens.
void write_row(const std::string& name, const testing::TemporaryFolder& folder) {
  const auto all = rows();
  for (const auto& row : all) {
    if (row.at("name") == name) write_files(row, all, folder);
  }
}

TEST(TokenizerPretrained, AnUnknownLanguageListsThoseThatAreLikeIt) {
  const testing::TemporaryFolder folder;
  write_row("mbart-large-50-many-to-many-mmt", folder);
  EXPECT_THROWS(Tokenizer::from_pretrained(folder.path(), {.tgt_lang = "de_AT"}), DataError,
                "tokenizer_config.json", "tgt_lang: the tokenizer has no language 'de_AT'",
                "it has de_DE, ar_AR, cs_CZ", "and 46 more");
}

TEST(TokenizerPretrained, TellsLanguagesThatAreNamedFromTheClassesOwn) {
  const testing::TemporaryFolder folder;
  write_row("nllb-200-distilled-600M", folder);
  const auto names_both = [&](const PretrainedOptions& options) {
    return Tokenizer::from_pretrained(folder.path(), options).settings().names_both_languages;
  };
  EXPECT_FALSE(names_both({}));
  EXPECT_FALSE(names_both({.tgt_lang = "deu_Latn"}));
  EXPECT_TRUE(names_both({.src_lang = "eng_Latn", .tgt_lang = "deu_Latn"}));
  testing::write_bytes(
      folder / "tokenizer_config.json",
      R"({"tokenizer_class": "NllbTokenizer", "src_lang": "eng_Latn", "tgt_lang": "fra_Latn"})");
  EXPECT_TRUE(names_both({}));
}

TEST(TokenizerPretrained, VocabularyFilesAloneAreThoseOfBertOrGpt2) {
  const testing::TemporaryFolder folder;
  testing::write_bytes(folder / "vocab.txt", kWords);
  const auto peer = Tokenizer::from_pretrained(folder.path());
  EXPECT_EQ(peer.encode("ABC").ids, (std::vector<std::int64_t>{2, 5, 6, 3}));
  EXPECT_EQ(Tokenizer::from_pretrained(folder / "vocab.txt").encode("ABC").ids, peer.encode("ABC").ids);
  const testing::TemporaryFolder empty;
  EXPECT_THROWS(Tokenizer::from_pretrained(empty.path()), DataError, empty.path().string(), "tokenizer.json");
}

}  // namespace
}  // namespace lockstep
