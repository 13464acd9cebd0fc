// Texts of different lengths in one row, which do not look at each other.

#include <gtest/gtest.h>
#include <torch/types.h>

#include "lockstep/core/error.hpp"
#include "lockstep/data/collate.hpp"
#include "lockstep/data/packing.hpp"
#include "lockstep/models/bert.hpp"
#include "lockstep/models/decoder.hpp"
#include "lockstep/models/gpt2.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"
#include "unit/models/golden_models.hpp"

namespace lockstep {
namespace {

using models::Gpt2LMHeadModel;

std::vector<Example> texts() {
  std::vector<Example> result;
  for (const std::int64_t length : {5, 1, 9, 7})
    result.push_back(Batch{{"input_ids", torch::arange(length).mul(7).add(length).remainder(31)}});
  return result;
}

Gpt2LMHeadModel small_model() {
  torch::manual_seed(2);
  Gpt2LMHeadModel model(
      models::Gpt2Config{.vocab_size = 31, .n_positions = 12, .n_embd = 16, .n_layer = 2, .n_head = 2});
  model->eval();
  return model;
}

TEST(FlattenedTexts, HaveTheLogitsAndLossesOfTheTextsAlone) {
  auto model = small_model();
  const Batch batch = flatten_collate({.return_seq_idx = true})(texts());
  const at::Tensor logits = model->forward(batch["input_ids"], {}, batch["position_ids"]);
  ASSERT_EQ(logits.size(1), 22);  // More than the model has places.
  std::int64_t begin = 0;
  double sum = 0;
  for (const auto& text : texts()) {
    const at::Tensor ids = text["input_ids"].unsqueeze(0);
    const at::Tensor alone = model->forward(ids);
    EXPECT_TRUE(torch::allclose(logits.narrow(1, begin, ids.size(1)), alone, 1e-5, 1e-6)) << begin;
    begin += ids.size(1);
    if (ids.size(1) > 1) sum += models::causal_lm_loss(alone, ids).item<double>() * (ids.size(1) - 1);
  }
  const double loss = models::causal_lm_loss(logits, batch["labels"]).item<double>();
  EXPECT_NEAR(loss, sum / (22 - 4), 1e-6);
}

/// An encoder's tokens see those behind them too.
TEST(FlattenedTexts, OfABertHaveTheStatesOfTheTextsAlone) {
  torch::manual_seed(3);
  models::BertModel model(models::BertConfig{.vocab_size = 31,
                                             .hidden_size = 16,
                                             .num_hidden_layers = 2,
                                             .num_attention_heads = 2,
                                             .intermediate_size = 24,
                                             .max_position_embeddings = 12});
  model->eval();
  const Batch batch = flatten_collate()(texts());
  const at::Tensor states =
      model->forward(batch["input_ids"], {}, {}, batch["position_ids"]).last_hidden_state;
  std::int64_t begin = 0;
  for (const auto& text : texts()) {
    const at::Tensor alone = model->forward(text["input_ids"].unsqueeze(0)).last_hidden_state;
    EXPECT_TRUE(torch::allclose(states.narrow(1, begin, alone.size(1)), alone, 1e-5, 1e-6)) << begin;
    begin += alone.size(1);
  }
  const at::Tensor ids = torch::arange(20).remainder(31).view({2, 10});
  EXPECT_TRUE(torch::equal(model->forward(ids, {}, {}, torch::arange(10).expand({2, 10})).last_hidden_state,
                           model->forward(ids).last_hidden_state));
  EXPECT_THROWS(model->forward(ids, {}, {}, torch::arange(10) + 3), UsageError, "below 12");
}

/// Blocks of several texts, some of them cut: what is seen of a text is what a block has of it.
TEST(FlattenedTexts, PackedInBlocksHaveTheLogitsOfTheirPieces) {
  auto model = small_model();
  const Batch blocks =
      group_texts(texts(), {.block_size = 11, .return_position_ids = true, .return_seq_idx = true});
  ASSERT_EQ(blocks.size(), 2);
  const at::Tensor logits = model->forward(blocks["input_ids"], {}, blocks["position_ids"]);
  for (std::int64_t row = 0; row < 2; ++row) {
    for (std::int64_t text = 0; text <= blocks["seq_idx"][row].max().item<std::int64_t>(); ++text) {
      const at::Tensor places = blocks["seq_idx"][row].eq(text).nonzero().flatten();
      const at::Tensor alone = model->forward(blocks["input_ids"][row].index({places}).unsqueeze(0));
      EXPECT_TRUE(torch::allclose(logits[row].index({places}), alone[0], 1e-5, 1e-6)) << row << " " << text;
    }
  }
}

/// Two packed rows, of which the short one is padded by more than its own tokens: each text has the logits
/// that it has alone.
template <class Model>
void expect_padding_changes_no_text(Model& model, std::int64_t longest) {
  std::vector<Example> rows;
  for (const std::int64_t count : {4, 1}) {
    std::vector<at::Tensor> ids, places;
    for (std::int64_t text = 0; text < count; ++text) {
      ids.push_back((torch::arange(longest) * 7 + text + count).remainder(31));
      places.push_back(torch::arange(longest));
    }
    rows.push_back(Batch{{"input_ids", torch::cat(ids)}, {"position_ids", torch::cat(places)}});
  }
  const Batch batch = causal_lm_collate()(rows);
  const at::Tensor logits = model->forward(batch["input_ids"], {}, batch["position_ids"]);
  for (std::int64_t row = 0; row < 2; ++row) {
    for (std::int64_t text = 0; text < (row == 0 ? 4 : 1); ++text) {
      const at::Tensor alone =
          model->forward(batch["input_ids"][row].narrow(0, text * longest, longest).unsqueeze(0));
      EXPECT_TRUE(torch::allclose(logits[row].narrow(0, text * longest, longest), alone[0], 1e-4, 1e-5))
          << row << " " << text;
    }
  }
}

TEST(FlattenedTexts, AreNotChangedByThePaddingBehindThem) {
  auto model = small_model();
  expect_padding_changes_no_text(model, 7);
  // Frequencies of the longest text of the batch.
  for (const char* name : {"llama_longrope", "llama_dynamic"}) {
    const testing::TemporaryFolder folder;
    testing::write_bytes(folder.path() / "config.json", models::golden_configs().at(name));
    models::DecoderForCausalLM decoder(models::DecoderConfig::from_file(folder.path()));
    decoder->eval();
    models::fill(*decoder);
    SCOPED_TRACE(name);
    expect_padding_changes_no_text(decoder, 5);
  }
}

/// Positions as they are without any are no texts of their own.
TEST(FlattenedTexts, PlainPositionsChangeNothing) {
  auto model = small_model();
  const at::Tensor ids = torch::arange(20).remainder(31).view({2, 10});
  const at::Tensor places = torch::arange(10).expand({2, 10});
  EXPECT_TRUE(torch::equal(model->forward(ids, {}, places), model->forward(ids)));
  EXPECT_THROWS(model->forward(ids, {}, places + 3), UsageError, "below 12");
  EXPECT_THROWS(model->forward(ids, {}, places[0]), UsageError, "position_ids of the shape");
}

TEST(FlattenedTexts, AreLaidOutAsTransformersLaysThemOut) {
  auto examples = texts();
  examples[0].insert("labels", torch::full({5}, 3));
  for (std::size_t i = 1; i < examples.size(); ++i) examples[i].insert("labels", examples[i]["input_ids"]);
  const Batch batch = flatten_collate({.return_seq_idx = true, .separator_id = -7})(examples);
  EXPECT_EQ(batch.names(), (std::vector<std::string>{"input_ids", "labels", "position_ids", "seq_idx"}));
  EXPECT_TRUE(torch::equal(batch["labels"].slice(1, 0, 6), torch::tensor({{-7, 3, 3, 3, 3, -7}})));
  EXPECT_TRUE(torch::equal(batch["position_ids"].slice(1, 3, 8), torch::tensor({{3, 4, 0, 0, 1}})));
  EXPECT_TRUE(torch::equal(batch["seq_idx"].slice(1, 3, 8), torch::tensor({{0, 0, 1, 2, 2}}, at::kInt)));
  examples[1].set("labels", torch::zeros({4}, at::kLong));
  EXPECT_THROWS(flatten_collate()(examples), DataError, "sample 1", "another shape");
  EXPECT_THROWS(flatten_collate()({Batch{{"x", torch::ones({2})}}}), DataError, "no input_ids");
  const Batch empty{{"input_ids", torch::empty({0}, torch::kLong)}};
  EXPECT_THROWS(flatten_collate()({empty}), DataError, "no sample of a batch has a token");
  const Batch two{{"input_ids", torch::ones({2}, torch::kByte)}};
  const Batch row = flatten_collate({.return_seq_idx = true})({empty, two, empty, two});
  EXPECT_TRUE(torch::equal(row["seq_idx"], torch::tensor({{0, 0, 1, 1}}, torch::kInt)));
  EXPECT_TRUE(torch::equal(row["labels"], torch::tensor({{-100, 1, -100, 1}}, torch::kLong)));
}

}  // namespace
}  // namespace lockstep
