#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "lockstep/core/error.hpp"
#include "lockstep/data/collate.hpp"
#include "lockstep/data/dataset.hpp"
#include "lockstep/data/packing.hpp"
#include "lockstep/data/sampler.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using Indices = std::vector<std::int64_t>;

at::Tensor tensor(const Indices& values) { return at::tensor(at::ArrayRef<std::int64_t>(values), at::kLong); }

/// The lines of transformers_golden.py of one kind: the words before the colon, and the text after it.
std::vector<std::pair<std::vector<std::string>, std::string>> golden(const std::string& kind) {
  std::ifstream file(LOCKSTEP_TRANSFORMERS_GOLDEN);
  std::vector<std::pair<std::vector<std::string>, std::string>> lines;
  for (std::string text; std::getline(file, text);) {
    std::istringstream words(text.substr(0, text.find(" :")));
    std::vector<std::string> setting;
    for (std::string word; words >> word;) setting.push_back(word);
    if (setting.front() == kind) lines.emplace_back(setting, text.substr(text.find(':') + 2));
  }
  return lines;
}

std::string hashed(const Indices& indices) {
  std::uint64_t result = 0xCBF29CE484222325ULL;
  for (const auto index : indices) result = (result ^ static_cast<std::uint64_t>(index)) * 0x100000001B3ULL;
  return std::to_string(result);
}

TEST(LengthGroupedSampler, EqualsTransformersIndexForIndex) {
  const auto lines = golden("grouped");
  EXPECT_EQ(lines.size(), 60U);
  for (const auto& [setting, expected] : lines) {
    Indices lengths(std::stoul(setting[1]));
    for (std::size_t i = 0; i < lengths.size(); ++i)
      lengths[i] = static_cast<std::int64_t>(7919 * i % 97 + 1);
    const LengthGroupedSampler sampler(lengths, {.batch_size = std::stoll(setting[2]),
                                                 .seed = std::stoull(setting[4]),
                                                 .mega_batch_mult = std::stoll(setting[3])});
    EXPECT_EQ(hashed(sampler.epoch_indices(0)), expected) << ::testing::PrintToString(setting);
  }
}

/// The samples of transformers_golden.py.
std::vector<Example> features(bool token_labels) {
  std::vector<Example> examples;
  std::int64_t number = 0;
  for (const std::int64_t length : {3, 1, 5}) {
    Example example{{"input_ids", at::arange(length) + 10 * number + 1},
                    {"token_type_ids", at::ones({length}, at::kLong)}};
    if (token_labels) {
      example.insert("labels", at::arange(length));
    } else {
      example.insert("label", at::scalar_tensor(number, at::kLong));
    }
    examples.push_back(example);
    ++number;
  }
  return examples;
}

std::string printed(const Batch& batch) {
  auto names = batch.names();
  std::sort(names.begin(), names.end());
  std::ostringstream text;
  for (const auto& name : names) {
    const at::Tensor values = batch[name];
    text << (text.tellp() > 0 ? " " : "") << name << " ";
    for (std::int64_t i = 0; i < values.dim(); ++i) text << (i > 0 ? "x" : "") << values.size(i);
    const at::Tensor flat = values.flatten();
    for (std::int64_t i = 0; i < flat.size(0); ++i) text << " " << flat[i].item<std::int64_t>();
  }
  return text.str();
}

TEST(PadCollate, EqualsTransformersCollators) {
  const auto lines = golden("padded");
  EXPECT_EQ(lines.size(), 8U);
  for (const auto& [setting, expected] : lines) {
    using Side = PaddingCollateOptions::Side;
    const auto collate = pad_collate({.pad_token_id = 99,
                                      .side = setting[1] == "left" ? Side::left : Side::right,
                                      .pad_to_multiple_of = std::stoll(setting[2])});
    EXPECT_EQ(printed(collate(features(setting[3] == "1"))), expected);
  }
}

TEST(PadCollate, PadsTheMaskThatItAdds) {
  const auto collate = pad_collate({.names = {"input_ids", "labels"}});
  const Batch batch = collate({{{"input_ids", tensor({5, 6, 7})}, {"labels", tensor({1, 2, 3})}},
                               {{"input_ids", tensor({8})}, {"labels", tensor({4})}}});
  EXPECT_TRUE(at::equal(batch["attention_mask"], tensor({1, 1, 1, 1, 0, 0}).view({2, 3})));
  EXPECT_TRUE(at::equal(batch["labels"], tensor({1, 2, 3, 4, -100, -100}).view({2, 3})));
}

TEST(CausalLmCollate, EqualsTransformersCollator) {
  const auto lines = golden("causal");
  EXPECT_EQ(lines.size(), 4U);
  for (const auto& [setting, expected] : lines) {
    using Side = PaddingCollateOptions::Side;
    const auto collate = causal_lm_collate({.pad_token_id = 99,
                                            .side = setting[1] == "left" ? Side::left : Side::right,
                                            .pad_to_multiple_of = std::stoll(setting[2])});
    std::vector<Example> texts;
    for (const auto& sample : features(false))
      texts.push_back({{"input_ids", sample["input_ids"]}, {"token_type_ids", sample["token_type_ids"]}});
    EXPECT_EQ(printed(collate(texts)), expected);
  }
}

TEST(CausalLmCollate, KeepsLabelsOfItsOwnAndPadTokensInTexts) {
  const auto collate = causal_lm_collate({.pad_token_id = 0});
  const Batch batch = collate(
      {{{"input_ids", tensor({5, 0})}, {"labels", tensor({-100, 0})}}, {{"input_ids", tensor({7, 8, 0})}}});
  EXPECT_TRUE(at::equal(batch["labels"], tensor({-100, 0, -100, 7, 8, 0}).view({2, 3})));
  EXPECT_TRUE(at::equal(batch["attention_mask"], tensor({1, 1, 0, 1, 1, 1}).view({2, 3})));
  EXPECT_THROWS(collate({{{"ids", tensor({1})}}}), DataError, "'input_ids'");
}

/// A loss of nothing, which trl and transformers train on in silence (huggingface/trl 4879).
TEST(CausalLmCollate, ABatchWithoutATrainedTokenIsRefused) {
  Example prompt{{"input_ids", tensor({5, 6})}, {"labels", tensor({-100, -100})}};
  const Example text{{"input_ids", tensor({7, 8, 9})}, {"labels", tensor({-100, -100, 9})}};
  EXPECT_NO_THROW(causal_lm_collate()({prompt, text}));
  EXPECT_NO_THROW(flatten_collate()({prompt, text}));
  prompt.indices = {12};
  EXPECT_THROWS(causal_lm_collate()({prompt, prompt}), DataError, "causal_lm_collate", "(number 12, 12)",
                "has a token to train on", "all labels behind the first are -100", "Leave such samples out");
  EXPECT_THROWS(flatten_collate()({prompt}), DataError, "flatten_collate", "(number 12)");
  // Of a text of one token, nothing is predicted, and of no row the first one.
  EXPECT_THROWS(causal_lm_collate()({{{"input_ids", tensor({5})}}}), DataError, "causal_lm_collate");
  const Example first{{"input_ids", tensor({5, 6})}, {"labels", tensor({5, -100})}};
  EXPECT_THROWS(causal_lm_collate()({first, prompt}), DataError, "causal_lm_collate");
  EXPECT_NO_THROW(causal_lm_collate()({first, text}));
  EXPECT_THROWS(flatten_collate()({{{"input_ids", tensor({5})}}}), DataError, "flatten_collate");
  EXPECT_NO_THROW(causal_lm_collate({.label_pad_token_id = -1})({prompt}));
}

/// Packed texts: their positions say what belongs together, and padding is texts of its own, without a
/// position that no token has.
TEST(CausalLmCollate, PackedTextsHaveNoMask) {
  const Example row{{"input_ids", tensor({5, 6, 7})}, {"position_ids", tensor({0, 1, 0})}};
  const Example short_row{{"input_ids", tensor({8})}, {"position_ids", tensor({0})}};
  const Batch batch = causal_lm_collate()({row, short_row});
  EXPECT_EQ(batch.names(), (std::vector<std::string>{"input_ids", "position_ids", "labels"}));
  EXPECT_TRUE(at::equal(batch["position_ids"], tensor({0, 1, 0, 0, 0, 1}).view({2, 3})));
  EXPECT_TRUE(at::equal(batch["labels"], tensor({5, 6, 7, 8, -100, -100}).view({2, 3})));
  const Batch wide = causal_lm_collate({.pad_to_multiple_of = 8})({row, short_row});
  EXPECT_TRUE(
      at::equal(wide["position_ids"], tensor({0, 1, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1, 0, 1, 0}).view({2, 8})));
  const Example words{{"input_ids", tensor({8, 9})}, {"position_ids", tensor({0, 0})}};
  const Batch single = causal_lm_collate({.pad_to_multiple_of = 4})({words});
  EXPECT_TRUE(at::equal(single["position_ids"], tensor({0, 0, 0, 0}).view({1, 4})));
}

/// As transformers' collator; "label" is not the labels of tokens.
TEST(CausalLmCollate, LeavesOutTheMaskOfSpecialTokens) {
  const Batch batch = causal_lm_collate()({{{"input_ids", tensor({5, 6})},
                                            {"special_tokens_mask", tensor({1, 0})},
                                            {"label", at::scalar_tensor(3, at::kLong)}}});
  EXPECT_EQ(batch.names(), (std::vector<std::string>{"input_ids", "label", "labels", "attention_mask"}));
  EXPECT_TRUE(at::equal(batch["labels"], tensor({5, 6}).view({1, 2})));
}

TEST(PadCollate, LeavesOtherVectorsAlone) {
  const auto collate = pad_collate();
  const Example one{{"input_ids", tensor({1, 2})}, {"position", at::ones({3})}};
  const Example two{{"input_ids", tensor({1, 2, 3, 4})}, {"position", at::ones({3})}};
  EXPECT_EQ(collate({one, two})["position"].sizes(), (Indices{2, 3}));
  EXPECT_THROWS(pad_collate({.pad_to_multiple_of = 0}), UsageError, "pad_to_multiple_of", "0");
}

/// As the lists of Python's integers and booleans, of which transformers' collators make tensors.
TEST(PadCollate, IntegersOfAnySizeHoldEveryPadding) {
  const auto bytes = [](const at::Tensor& ids) { return ids.to(at::kByte); };
  const Batch batch = causal_lm_collate({.pad_token_id = 300})(
      {{{"input_ids", bytes(tensor({1, 2}))}}, {{"input_ids", bytes(tensor({3}))}}});
  EXPECT_TRUE(at::equal(batch["input_ids"], tensor({1, 2, 3, 300}).view({2, 2})));
  EXPECT_TRUE(at::equal(batch["labels"], tensor({1, 2, 3, -100}).view({2, 2})));
  const Batch flags = pad_collate()({{{"labels", tensor({1, 0}).to(at::kBool)}}, {{"labels", tensor({1})}}});
  EXPECT_TRUE(at::equal(flags["labels"], tensor({1, 0, 1, -100}).view({2, 2})));
  const Batch blocks =
      group_texts({{{"input_ids", bytes(tensor({1, 2}))}}, {{"input_ids", bytes(tensor({3, 4}))}}},
                  {.block_size = 4, .return_position_ids = true});
  EXPECT_TRUE(at::equal(blocks["labels"], tensor({-100, 2, -100, 4}).view({1, 4})));
}

TEST(GroupTexts, RefusesSamplesThatAreNotAlike) {
  const Example ids{{"input_ids", tensor({1})}};
  EXPECT_THROWS(group_texts({ids, {{"input_ids", at::ones({1})}}}, {.block_size = 2}), DataError, "number 1",
                "'input_ids'", "Float", "Long");
  EXPECT_THROWS(group_texts({ids, {{"input_ids", tensor({1})}, {"mask", tensor({1})}}}, {.block_size = 2}),
                DataError, "number 1", "columns that the first one does not have");
}

TEST(GroupTexts, JoinsAndCuts) {
  const std::vector<Example> texts{
      {{"input_ids", tensor({1, 2, 3})}, {"mask", tensor({1, 1, 0})}},
      {{"input_ids", tensor({4})}, {"mask", tensor({0})}},
      {{"input_ids", tensor({5, 6, 7, 8, 9})}, {"mask", tensor({1, 1, 1, 1, 1})}}};
  const Batch blocks = group_texts(texts, {.block_size = 4});
  EXPECT_TRUE(at::equal(blocks["input_ids"], tensor({1, 2, 3, 4, 5, 6, 7, 8}).view({2, 4})));
  EXPECT_TRUE(at::equal(blocks["mask"], tensor({1, 1, 0, 0, 1, 1, 1, 1}).view({2, 4})));
  EXPECT_TRUE(at::equal(blocks["labels"], blocks["input_ids"]));
  EXPECT_EQ(pack_collate({.block_size = 10})(texts).size(), 0);
  EXPECT_THROWS(group_texts(texts, {.block_size = 0}), UsageError, "block_size", "0");
  EXPECT_THROWS(group_texts({{{"input_ids", tensor({1})}, {"mask", tensor({1, 2})}}}, {.block_size = 2}),
                DataError, "number 0", "'mask'", "length 2", "not 1");
}

/// Texts of 3, 0, 1 and 6 tokens in blocks of 4: the last one is cut.
TEST(GroupTexts, KeepsTextsApartByTheirPositions) {
  std::vector<Example> texts;
  for (const std::int64_t length : {3, 0, 1, 6})
    texts.push_back(
        {{"input_ids", at::full({length}, length, at::kLong)}, {"labels", at::ones({length}, at::kLong)}});
  const Batch blocks = group_texts(
      texts, {.block_size = 4, .return_position_ids = true, .return_seq_idx = true, .separator_id = -7});
  EXPECT_EQ(blocks.names(), (std::vector<std::string>{"input_ids", "labels", "position_ids", "seq_idx"}));
  EXPECT_TRUE(at::equal(blocks["input_ids"], tensor({3, 3, 3, 1, 6, 6, 6, 6}).view({2, 4})));
  EXPECT_TRUE(at::equal(blocks["position_ids"], tensor({0, 1, 2, 0, 0, 1, 2, 3}).view({2, 4})));
  EXPECT_TRUE(at::equal(blocks["seq_idx"], tensor({0, 0, 0, 1, 0, 0, 0, 0}).view({2, 4})));
  EXPECT_TRUE(at::equal(blocks["labels"], tensor({-7, 1, 1, -7, -7, 1, 1, 1}).view({2, 4})));
  const auto cut = group_texts(texts, {.block_size = 5, .return_seq_idx = true});
  EXPECT_TRUE(at::equal(cut["seq_idx"], tensor({0, 0, 0, 1, 2, 0, 0, 0, 0, 0}).view({2, 5})));
  EXPECT_FALSE(cut.contains("position_ids"));
}

/// Sample i has i tokens.
class Triangle final : public Dataset {
 public:
  std::int64_t size() const override { return 6; }
  Example get(std::int64_t index, const SampleContext&) const override {
    return {{"input_ids", at::full({index}, index, at::kLong)}};
  }
};

TEST(GroupTexts, PacksAWholeDataSetPartByPart) {
  const auto all = packed(Triangle(), {.block_size = 4, .batch_size = 0});
  EXPECT_EQ(all->size(), 3);  // 15 tokens
  EXPECT_TRUE(at::equal(all->get(1, {})["input_ids"], tensor({3, 3, 4, 4})));
  const auto parts = packed(Triangle(), {.block_size = 4, .batch_size = 4});
  EXPECT_EQ(parts->size(), 3);  // of 6 and of 9 tokens
  EXPECT_TRUE(at::equal(parts->get(1, {})["input_ids"], tensor({4, 4, 4, 4})));
  EXPECT_THROWS(packed(Triangle(), {.block_size = -1}), UsageError, "block_size");
  EXPECT_THROWS(packed(Triangle(), {.batch_size = -1}), UsageError, "batch_size");
}

}  // namespace
}  // namespace lockstep
