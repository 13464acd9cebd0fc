#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "core/text.hpp"
#include "datasets/cache/cache_entry.hpp"
#include "datasets/texts/tokenizer_key.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/datasets/text_files.hpp"
#include "lockstep/datasets/tokenize.hpp"
#include "net/sha256.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryFolder;
using testing::write_bytes;
using Ids = std::span<const std::int64_t>;

/// The lines of make_texts.py of one kind: the numbers before the colon, and the text after it.
std::vector<std::pair<std::vector<std::int64_t>, std::string>> golden(const std::string& kind) {
  std::ifstream file(LOCKSTEP_TEXTS_GOLDEN);
  std::vector<std::pair<std::vector<std::int64_t>, std::string>> lines;
  for (std::string text; std::getline(file, text);) {
    std::istringstream words(text);
    std::string name;
    if (!(words >> name) || name != kind) continue;
    std::vector<std::int64_t> numbers;
    for (std::int64_t number = 0; words >> number;) numbers.push_back(number);
    lines.emplace_back(numbers, text.substr(text.find(':') + 2));
  }
  return lines;
}

/// As many rows, and FNV-1a over what they hold.
class Digest {
 public:
  void add(std::uint64_t value) { hash_ = (hash_ ^ value) * 0x100000001B3ULL; }
  std::string text(std::int64_t rows) const { return std::to_string(rows) + " " + std::to_string(hash_); }

 private:
  std::uint64_t hash_ = 0xCBF29CE484222325ULL;
};

std::string digest_of_texts(const ArrowDataset& data) {
  Digest digest;
  const auto texts = data.column<std::string_view>("text");
  for (std::int64_t row = 0; row < data.num_rows(); ++row) {
    for (const char byte : texts[row]) digest.add(static_cast<unsigned char>(byte));
    digest.add(0);
  }
  return digest.text(data.num_rows());
}

std::string digest_of_ids(const ArrowDataset& data, const std::string& column = "input_ids") {
  Digest digest;
  const auto lists = data.column<Ids>(column);
  for (std::int64_t row = 0; row < data.num_rows(); ++row) {
    for (const auto id : lists[row]) digest.add(static_cast<std::uint64_t>(id));
    digest.add(~std::uint64_t{0});
  }
  return digest.text(data.num_rows());
}

MapOptions quiet(const TemporaryFolder& cache) {
  MapOptions options;
  options.cache_folder = cache.path();
  options.progress = false;
  return options;
}

ArrowDataset shakespeare(bool keep_linebreaks) {
  return load_text(LOCKSTEP_TRAINING_TEXT, {.keep_linebreaks = keep_linebreaks});
}

TokenizeOptions by_bytes() { return {.tokenizer = LOCKSTEP_TOKENIZER_DIR "/roberta.json"}; }

TEST(LoadText, EqualsDatasets) {
  const auto lines = golden("lines");
  EXPECT_EQ(lines.size(), 2U);
  for (const auto& [setting, expected] : lines)
    EXPECT_EQ(digest_of_texts(shakespeare(setting[0] == 1)), expected) << setting[0];
}

TEST(LoadText, KeepsTheEndsOfLinesAndOfTheFile) {
  const TemporaryFolder folder;
  write_bytes(folder / "a.txt", "one\r\n\ntwo");
  const auto data = load_text(folder / "a.txt");
  EXPECT_EQ(data.column<std::string>("text").to_vector(), (std::vector<std::string>{"one\n", "\n", "two"}));
  EXPECT_EQ(data.files(), (std::vector<fs::path>{folder / "a.txt"}));
}

TEST(Tokenize, EqualsTokenizers) {
  const TemporaryFolder cache;
  const auto lines = golden("tokens");
  EXPECT_EQ(lines.size(), 3U);
  for (const auto& [setting, expected] : lines) {
    auto options = by_bytes();
    options.add_special_tokens = setting[1] == 1;
    options.max_length = setting[2];
    const auto tokens = tokenize(shakespeare(setting[0] == 1), options, quiet(cache));
    EXPECT_EQ(digest_of_ids(tokens), expected);
    EXPECT_EQ(tokens.column_names(), (std::vector<std::string>{"input_ids", "attention_mask"}));
  }
  EXPECT_EQ(cache.files().size(), 3U) << "each setting has an entry of its own";
}

TEST(Tokenize, TakesPairsAndKeepsColumns) {
  const TemporaryFolder cache;
  const auto data = ArrowDataset::from_columns({{"one", make_column<std::string>({"hello", "world"})},
                                                {"two", make_column<std::string>({"world", "a"})},
                                                {"label", make_column<std::int64_t>({3, 4})}});
  const TokenizeOptions options{.tokenizer = LOCKSTEP_TOKENIZER_DIR "/bert.json",
                                .column = "one",
                                .pair_column = "two",
                                .outputs = {"input_ids", "token_type_ids"},
                                .keep_columns = {"label"}};
  const auto tokens = tokenize(data, options, quiet(cache));
  EXPECT_EQ(tokens.column_names(), (std::vector<std::string>{"label", "input_ids", "token_type_ids"}));
  const auto encoding = load_tokenizer(options.tokenizer).encode("hello", "world");
  EXPECT_EQ(tokens.column<std::vector<std::int64_t>>("input_ids")[0], encoding.ids);
  EXPECT_EQ(tokens.column<std::vector<std::int64_t>>("token_type_ids")[0], encoding.type_ids);
  EXPECT_EQ(tokens.column<std::int64_t>("label")[1], 4);
}

TEST(Tokenize, RefusesWhatThereIsNot) {
  const TemporaryFolder cache;
  const auto data = shakespeare(false);
  auto options = by_bytes();
  options.outputs = {"input_idz"};
  EXPECT_THROWS(tokenize(data, options, quiet(cache)), UsageError, "'input_idz'", "attention_mask");
  options = by_bytes();
  options.column = "txt";
  EXPECT_THROWS(tokenize(data, options, quiet(cache)), UsageError, "txt", "text");
  options = by_bytes();
  options.keep_columns = {"label"};
  EXPECT_THROWS(tokenize(data, options, quiet(cache)), UsageError, "label");
  options = by_bytes();
  options.max_length = -1;
  EXPECT_THROWS(tokenize(data, options, quiet(cache)), UsageError, "max_length", "-1");
  const auto with_null =
      ArrowDataset::from_columns({{"text", make_column<std::optional<std::string>>({"one", std::nullopt})}});
  EXPECT_THROWS(tokenize(with_null, by_bytes(), quiet(cache)), DataError,
                "row 1 of the column 'text' is null");
  EXPECT_THROWS(load_tokenizer(cache.path()), DataError, cache.path().string(), "tokenizer.json",
                "vocab.txt");
}

TEST(TokenizerFiles, AreAllThatGoWithATokenizer) {
  const TemporaryFolder folder;
  const std::vector<std::string> names = {
      "tokenizer.json",          "vocab.json",        "merges.txt",          "tokenizer_config.json",
      "special_tokens_map.json", "added_tokens.json", "chat_template.jinja", "tokenizer.model"};
  for (const auto& name : names) testing::write_bytes(folder / name, "{}");
  fs::create_directory(folder / "additional_chat_templates");
  testing::write_bytes(folder / "additional_chat_templates/tool_use.jinja", "");
  testing::write_bytes(folder / "config.json", "{}");
  testing::write_bytes(folder / "model.safetensors", "");
  std::set<std::string> found;
  for (const auto& file : tokenizer_files(folder.path()))
    found.insert(file.lexically_relative(folder.path()).string());
  std::set<std::string> wanted(names.begin(), names.end());
  wanted.insert("additional_chat_templates/tool_use.jinja");
  EXPECT_EQ(found, wanted);
}

/// Another setting, and another file of the folder, are another entry of the cache.
TEST(Tokenize, OpensAModelsFolder) {
  const TemporaryFolder folder, cache;
  testing::write_bytes(folder / "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\nhello\nworld\n");
  testing::write_bytes(folder / "config.json", R"({"model_type": "bert"})");
  testing::write_bytes(folder / "tokenizer_config.json",
                       R"({"do_lower_case": true, "truncation_side": "left"})");
  const auto data = ArrowDataset::from_columns({{"text", make_column<std::string>({"Hello World"})}});
  using List = std::vector<std::int64_t>;
  TokenizeOptions options{.tokenizer = folder.path(), .outputs = {"input_ids"}};
  EXPECT_EQ(tokenize(data, options, quiet(cache)).column<List>("input_ids")[0], (List{2, 4, 5, 3}));
  options.max_length = 3;
  EXPECT_EQ(tokenize(data, options, quiet(cache)).column<List>("input_ids")[0], (List{2, 5, 3}));
  options.pretrained.do_lower_case = false;
  EXPECT_EQ(tokenize(data, options, quiet(cache)).column<List>("input_ids")[0], (List{2, 1, 3}));
  testing::write_bytes(folder / "tokenizer_config.json", R"({"do_lower_case": true})");
  options.pretrained = {};
  EXPECT_EQ(tokenize(data, options, quiet(cache)).column<List>("input_ids")[0], (List{2, 4, 3}));
}

std::string version_in(const TemporaryFolder& cache) {
  EXPECT_EQ(cache.files().size(), 1U);
  return read_manifest(cache / cache.files().front()).value_or(CacheManifest()).fields["version"];
}

/// Of tokens and of conversations: another language of the same text has other ids.
TEST(Tokenize, EveryOptionOfTheTokenizerIsInTheKey) {
  tokenizer::PretrainedOptions options;
  std::set<std::string> keys{key_of_tokenizer(options).dump()};
  const auto differs = [&] { return keys.insert(key_of_tokenizer(options).dump()).second; };
  options.src_lang = "eng_Latn";
  EXPECT_TRUE(differs());
  options.tgt_lang = "deu_Latn";
  EXPECT_TRUE(differs());
  options.add_bos_token = true;
  EXPECT_TRUE(differs());
  options.add_eos_token = true;
  EXPECT_TRUE(differs());
  options.add_prefix_space = true;
  EXPECT_TRUE(differs());
  options.do_lower_case = true;
  EXPECT_TRUE(differs());
  options.special_tokens["pad_token"] = "<p>";
  EXPECT_TRUE(differs());
}

/// Of Lockstep's own code: whoever changes a tokenizer gets no old tokens.
TEST(Tokenize, TheVersionIsOfTheSources) {
  std::set<fs::path> sources{fs::path(LOCKSTEP_SOURCES) / "data" / "packed_texts.hpp"};
  for (const auto* folder : {"datasets/texts", "tokenizers", "tokenizers/jinja", "tokenizers/pretrained"}) {
    for (const auto& each : fs::directory_iterator(fs::path(LOCKSTEP_SOURCES) / folder)) {
      if (each.path().extension() == ".cpp" || each.path().extension() == ".hpp") sources.insert(each.path());
    }
  }
  std::string version;
  for (const auto& source : sources)
    version = format_hex(net::sha256(version + format_hex(net::sha256(testing::read_bytes(source)))));
  const TemporaryFolder tokens, blocks;
  const auto ids = tokenize(shakespeare(false).take(10), by_bytes(), quiet(tokens));
  EXPECT_EQ(version_in(tokens), "\"" + version + "\"");
  group_texts(ids, {.block_size = 8}, quiet(blocks));
  EXPECT_EQ(version_in(blocks), "\"" + version + "\"");
}

TEST(GroupTexts, EqualsTheExamplesFunction) {
  const TemporaryFolder cache;
  auto options = by_bytes();
  options.add_special_tokens = false;
  const auto tokens = tokenize(shakespeare(true), options, quiet(cache));
  const auto lines = golden("blocks");
  EXPECT_EQ(lines.size(), 4U);
  for (const auto& [setting, expected] : lines) {
    auto map = quiet(cache);
    map.num_proc = 2;
    const auto blocks = group_texts(tokens, {.block_size = setting[0], .batch_size = setting[1]}, map);
    EXPECT_EQ(digest_of_ids(blocks), expected) << setting[0] << " " << setting[1];
    EXPECT_EQ(digest_of_ids(blocks, "labels"), expected);
    EXPECT_EQ(blocks.column<Ids>("attention_mask")[0].size(), static_cast<std::size_t>(setting[0]));
  }
}

TEST(GroupTexts, KeepsTextsApartByTheirPositions) {
  using Lists = std::vector<std::vector<std::int64_t>>;
  const TemporaryFolder cache;
  const auto data = ArrowDataset::from_columns(
      {{"input_ids", make_column<std::vector<std::int32_t>>({{1, 2, 3}, {}, {4}, {5, 6, 7, 8, 9, 9}})}});
  const PackingOptions options{.block_size = 4, .return_position_ids = true, .return_seq_idx = true};
  const auto blocks = group_texts(data, options, quiet(cache));
  const auto column = [&](const char* name) { return blocks.column<Lists::value_type>(name).to_vector(); };
  EXPECT_EQ(column("input_ids"), (Lists{{1, 2, 3, 4}, {5, 6, 7, 8}}));
  EXPECT_EQ(column("labels"), (Lists{{-100, 2, 3, -100}, {-100, 6, 7, 8}}));
  EXPECT_EQ(column("position_ids"), (Lists{{0, 1, 2, 0}, {0, 1, 2, 3}}));
  EXPECT_EQ(column("seq_idx"), (Lists{{0, 0, 0, 1}, {0, 0, 0, 0}}));
  const auto joined = group_texts(data, {.block_size = 4}, quiet(cache));
  EXPECT_EQ(joined.column_names(), (std::vector<std::string>{"input_ids", "labels"}))
      << "kept apart in the cache too";
}

TEST(GroupTexts, TakesNarrowIntegersAndLabelsOfItsOwn) {
  const TemporaryFolder cache;
  const auto data =
      ArrowDataset::from_columns({{"input_ids", make_column<std::vector<std::int32_t>>({{1, 2, 3}, {4}})},
                                  {"labels", make_column<std::vector<std::int8_t>>({{-100, 2, 3}, {4}})}});
  const auto blocks = group_texts(data, {.block_size = 2}, quiet(cache));
  EXPECT_EQ(blocks.column_names(), (std::vector<std::string>{"input_ids", "labels"}));
  EXPECT_EQ(blocks.column<std::vector<std::int64_t>>("labels")[0], (std::vector<std::int64_t>{-100, 2}));
}

TEST(GroupTexts, RefusesWhatDoesNotFit) {
  const TemporaryFolder cache;
  const auto uneven =
      ArrowDataset::from_columns({{"input_ids", make_column<std::vector<std::int64_t>>({{1}, {2, 3}})},
                                  {"mask", make_column<std::vector<std::int64_t>>({{1}, {1}})}});
  EXPECT_THROWS(group_texts(uneven, {.block_size = 1}, quiet(cache)), DataError, "'mask'", "'input_ids'",
                "row 1");
  EXPECT_THROWS(group_texts(uneven, {.block_size = 0}, quiet(cache)), UsageError, "block_size", "0");
  EXPECT_THROWS(group_texts(uneven.select_columns({"mask"}), {.block_size = 5}, quiet(cache)), UsageError,
                "the 2 rows have 2 tokens", "block of 5 tokens");
  EXPECT_THROWS(group_texts(shakespeare(false), {.block_size = 5}, quiet(cache)), UsageError, "span");
}

constexpr const char* kSquad = R"({"version": "2.0", "data": [{"title": "T", "paragraphs": [
  {"context": "Ein B\u00e4r.", "qas": [
    {"id": "a", "question": "Wer?", "answers": [{"answer_start": 4, "text": "B\u00e4r"}], "is_impossible": false},
    {"id": "b", "question": "Wo?", "answers": []}]},
  {"context": "Leer.", "qas": []}]}]})";

TEST(LoadSquad, GivesARowForEachQuestion) {
  const TemporaryFolder folder;
  write_bytes(folder / "a.json", kSquad);
  const auto data = load_squad(folder / "a.json");
  EXPECT_EQ(data.column_names(), (std::vector<std::string>{"id", "title", "context", "question", "answers"}));
  ASSERT_EQ(data.num_rows(), 2);
  EXPECT_EQ(data[0]["answers"].to_json(), "{\"text\": [\"B\u00e4r\"], \"answer_start\": [4]}");
  EXPECT_EQ(data[1]["answers"].to_json(), R"({"text": [], "answer_start": []})");
  EXPECT_EQ(data[1].get<std::string>("context"), "Ein B\u00e4r.");
  EXPECT_EQ(data[1].get<std::string>("title"), "T");
}

/// As in the test sets of shared tasks.
TEST(LoadSquad, IdsMayBeIntegersAndAnswersMissing) {
  const TemporaryFolder folder;
  write_bytes(folder / "a.json", R"({"data": [{"paragraphs": [{"context": "C", "qas": [
      {"id": 17, "question": "Q"}, {"id": 18446744073709551615, "question": "R", "answers": null}]}]}]})");
  const auto data = load_squad(folder / "a.json");
  ASSERT_EQ(data.num_rows(), 2);
  EXPECT_EQ(data[0].get<std::string>("id"), "17");
  EXPECT_EQ(data[1].get<std::string>("id"), "18446744073709551615");
  for (const int row : {0, 1})
    EXPECT_EQ(data[row]["answers"].to_json(), R"({"text": [], "answer_start": []})");
}

TEST(LoadSquad, NamesThePlaceThatIsNotAsExpected) {
  const TemporaryFolder folder;
  const auto expect_refusal = [&](const std::string& from, const std::string& to, const char* place,
                                  const char* found) {
    std::string text = kSquad;
    text.replace(text.find(from), from.size(), to);
    write_bytes(folder / "b.json", text);
    EXPECT_THROWS(load_squad(folder / "b.json"), DataError, "b.json", place, found);
  };
  expect_refusal("\"data\"", "\"rows\"", "a list at 'data'", "nothing");
  expect_refusal("\"Ein B\\u00e4r.\"", "7", "a string at 'data[0].paragraphs[0].context'", "number");
  expect_refusal("4,", "-4,", "'data[0].paragraphs[0].qas[0].answers[0].answer_start'", "number");
  expect_refusal("\"answers\": []", "\"answers\": 7", "a list at 'data[0].paragraphs[0].qas[1].answers'",
                 "number");
  expect_refusal("\"id\": \"b\"", "\"id\": 1.5", "a string at 'data[0].paragraphs[0].qas[1].id'", "number");
  expect_refusal("{\"title\"", "[\"title\"", "valid JSON", "b.json");
}

}  // namespace
}  // namespace lockstep
