#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.hpp"
#include "lockstep/datasets/tokenize_words.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using testing::TemporaryFolder;
using Lists = std::vector<std::vector<std::int64_t>>;
using Texts = std::vector<std::vector<std::string>>;

const std::string kFolder = std::string(LOCKSTEP_TOKENIZER_DIR) + "/";

Lists lists_in(const ArrowDataset& rows, const std::string& name) {
  const auto column = rows.column<std::vector<std::int64_t>>(name);
  Lists lists;
  for (std::int64_t row = 0; row < rows.num_rows(); ++row) lists.push_back(column[row]);
  return lists;
}

ArrowDataset labelled_words(const Texts& words, const Lists& labels) {
  return ArrowDataset::from_columns({{"tokens", make_column(words)}, {"labels", make_column(labels)}});
}

MapOptions in_memory() {
  MapOptions options;
  options.keep_in_memory = true;
  options.progress = false;
  return options;
}

TEST(TokenizeWords, AlignsLabelsAsRunNerDoes) {
  std::ifstream file(LOCKSTEP_WORDS_GOLDEN);
  int cases = 0;
  for (std::string text; std::getline(file, text); ++cases) {
    const auto line = nlohmann::json::parse(text);
    SCOPED_TRACE(line["tokenizer"].get<std::string>() + " " + line["max_length"].dump());
    const auto rows =
        tokenize_words(labelled_words(line["words"].get<Texts>(), line["word_labels"].get<Lists>()),
                       {.tokenizer = kFolder + line["tokenizer"].get<std::string>(),
                        .max_length = line["max_length"],
                        .inner_labels = line["inner_labels"].get<std::vector<std::int64_t>>(),
                        .outputs = {"input_ids", "attention_mask", "token_type_ids"}},
                       in_memory());
    EXPECT_EQ(rows.column_names(),
              (std::vector<std::string>{"input_ids", "attention_mask", "token_type_ids", "labels"}));
    for (const char* name : {"input_ids", "token_type_ids", "labels"})
      EXPECT_EQ(lists_in(rows, name), line[name].get<Lists>()) << name;
    const auto ids = lists_in(rows, "input_ids"), mask = lists_in(rows, "attention_mask");
    for (std::size_t row = 0; row < ids.size(); ++row)
      EXPECT_EQ(mask[row], std::vector<std::int64_t>(ids[row].size(), 1));
  }
  EXPECT_EQ(cases, 8);
}

TEST(TokenizeWords, RefusesWhatDoesNotFit) {
  const auto run = [](const ArrowDataset& rows, TokenizeWordsOptions options = {}) {
    options.tokenizer = kFolder + "bert.json";
    return tokenize_words(rows, options, in_memory());
  };
  const auto rows = labelled_words({{"a", "unbelievably"}, {"c"}}, {{0, 1}, {0}});
  EXPECT_THROWS(run(labelled_words({{"a"}, {"b", "c"}}, {{0}, {1}})), DataError, "row 1", "2 words",
                "1 labels");
  EXPECT_THROWS(run(rows, {.tokenizer = {}, .column = "words"}), UsageError, "'words'", "tokens");
  EXPECT_THROWS(run(rows, {.tokenizer = {}, .max_length = 2}), UsageError, "max_length is 2",
                "2 special tokens");
  EXPECT_THROWS(run(rows, {.tokenizer = {}, .max_length = -1}), UsageError, "-1");
  EXPECT_THROWS(run(rows, {.tokenizer = {}, .inner_labels = {0}}), DataError, "label 1", "below 1");
  EXPECT_THROWS(run(rows, {.tokenizer = {}, .outputs = {"offsets"}}), UsageError, "'offsets'",
                "token_type_ids");
  EXPECT_THROWS(run(ArrowDataset::from_columns({{"tokens", make_column(std::vector<std::string>{"a b"})},
                                                {"labels", make_column(Lists{{0, 1}})}})),
                UsageError, "'tokens'", "expected lists");
  EXPECT_THROWS(run(ArrowDataset::from_columns(
                    {{"tokens", make_column(Lists{{1}})}, {"labels", make_column(Lists{{0}})}})),
                UsageError, "expected lists of texts");
  using Maybe = std::optional<std::vector<std::string>>;
  EXPECT_THROWS(run(ArrowDataset::from_columns({{"tokens", make_column(std::vector<Maybe>{std::nullopt})},
                                                {"labels", make_column(Lists{{}})}})),
                DataError, "row 0", "'tokens' is null");
}

}  // namespace
}  // namespace lockstep
