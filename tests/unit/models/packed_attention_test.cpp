#include "models/packed_attention.hpp"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "comm/cuda/graph_recorder.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/models/decoder.hpp"
#include "lockstep/models/encoder.hpp"
#include "models/attention.hpp"
#include "support/throws.hpp"
#include "unit/models/golden_models.hpp"

namespace lockstep::models {
namespace {

struct DrawnHeads {
  at::Tensor query, key, value;
};

/// Four heads of queries, two of keys.
DrawnHeads random_heads(std::int64_t rows, std::int64_t length) {
  at::manual_seed(5);
  const auto draw = [&](std::int64_t heads) {
    return at::randn({rows, heads, length, 8}, at::kDouble).requires_grad_(true);
  };
  return {draw(4), draw(2), draw(2)};
}

at::Tensor positions_of(const std::vector<std::vector<std::int64_t>>& rows) {
  std::vector<at::Tensor> made;
  for (const auto& lengths : rows) {
    std::vector<at::Tensor> parts;
    for (const auto length : lengths) parts.push_back(at::arange(length));
    made.push_back(at::cat(parts));
  }
  return at::stack(made);
}

/// The mask that says the same.
at::Tensor mask_of(const PackedTexts& texts, const at::Tensor& position_ids) {
  const auto length = position_ids.size(1);
  const at::Tensor same = same_text_mask(position_ids);
  at::Tensor shown = at::ones({length, length}, at::kBool);
  if (texts.causal) shown = shown.tril();
  if (texts.before) shown = shown.triu(-*texts.before);
  if (texts.after) shown = shown.tril(*texts.after);
  return same.defined() ? same.logical_and(shown) : shown;
}

at::Tensor attend_with_mask(const DrawnHeads& heads, const at::Tensor& mask) {
  const auto repeated = [](const at::Tensor& states) { return states.repeat_interleave(2, 1); };
  return merge_heads(at::scaled_dot_product_attention(heads.query, repeated(heads.key), repeated(heads.value),
                                                      mask, 0.0, false, 0.3));
}

/// Results and gradients, with `weights` for the elements of the result.
void expect_same_attention(const std::string& what, const DrawnHeads& heads, const at::Tensor& found,
                           const at::Tensor& wanted, const at::Tensor& weights) {
  EXPECT_LT((found - wanted).mul(weights.ne(0)).abs().max().item<double>(), 1e-12) << what;
  const std::vector<at::Tensor> inputs{heads.query, heads.key, heads.value};
  const auto gradients = [&](const at::Tensor& result) {
    std::vector<at::Tensor> all;
    for (const auto& input : inputs) input.mutable_grad() = at::Tensor();
    (result * weights).sum().backward();
    for (const auto& input : inputs) all.push_back(input.grad().clone());
    return all;
  };
  const auto own = gradients(found), others = gradients(wanted);
  for (std::size_t i = 0; i < own.size(); ++i)
    EXPECT_LT((own[i] - others[i]).abs().max().item<double>(), 1e-11) << what << ", gradient " << i;
}

TEST(PackedAttention, TextsAndWindowsAreThoseOfTheMask) {
  const std::vector<std::vector<std::int64_t>> rows{{5, 30, 1, 1}, {37}};
  const auto position_ids = positions_of(rows);
  ASSERT_TRUE(
      at::equal(texts_of_positions(position_ids).begins, at::tensor({0, 5, 35, 36, 37, 74}, at::kInt)));
  const auto weights = at::randn({2, 37, 32}, at::kDouble);
  using Window = std::tuple<bool, std::optional<std::int64_t>, std::optional<std::int64_t>>;
  for (const auto& [causal, before, after] :
       {Window{true, {}, {}}, Window{false, {}, {}}, Window{true, 6, 0}, Window{true, 0, 0},
        Window{true, 100, 0}, Window{false, 3, 3}, Window{false, 4, 9}, Window{false, 0, 0}}) {
    auto texts = texts_of_positions(position_ids);
    texts.causal = causal;
    texts.before = before;
    texts.after = after;
    const DrawnHeads heads = random_heads(2, 37);
    expect_same_attention(std::to_string(causal) + " " + std::to_string(before.value_or(-1)), heads,
                          attend_texts(heads.query, heads.key, heads.value, texts, {.scale = 0.3}),
                          attend_with_mask(heads, mask_of(texts, position_ids)), weights);
  }
}

/// Padding at the end, in front, on both sides, and a row of nothing else; what is there counts for nothing.
TEST(PackedAttention, PaddedRowsAreThoseOfTheMask) {
  const at::Tensor shown = at::ones({5, 20}, at::kLong);
  shown[1].narrow(0, 12, 8).zero_();
  shown[2].narrow(0, 0, 7).zero_();
  shown[3].zero_();
  shown[4].narrow(0, 0, 2).zero_();
  shown[4].narrow(0, 17, 3).zero_();
  const auto found_texts = texts_of_mask(shown);
  ASSERT_TRUE(found_texts);
  EXPECT_TRUE(at::equal(found_texts->begins, at::tensor({0, 20, 32, 45, 45, 60}, at::kInt)));
  EXPECT_GE(found_texts->longest, 20);
  PackedTexts texts = *found_texts;
  const at::Tensor weights = at::randn({5, 20, 32}, at::kDouble).mul(shown.unsqueeze(2));
  for (const bool causal : {false, true}) {
    texts.causal = causal;
    const DrawnHeads heads = random_heads(5, 20);
    const at::Tensor mask = causal ? causal_mask(shown).mask : padding_mask(shown);
    const at::Tensor found = attend_texts(heads.query, heads.key, heads.value, texts, {.scale = 0.3});
    expect_same_attention("causal " + std::to_string(causal), heads, found, attend_with_mask(heads, mask),
                          weights);
    EXPECT_EQ(found[3].abs().max().item<double>(), 0);
  }
}

TEST(PackedAttention, PaddingBetweenTokensAndNothingElseKeepTheMask) {
  const at::Tensor shown = at::ones({2, 6}, at::kLong);
  shown[1][3] = 0;
  EXPECT_FALSE(texts_of_mask(shown));
  shown[1].narrow(0, 3, 3).zero_();
  EXPECT_TRUE(texts_of_mask(shown));
  EXPECT_TRUE(texts_of_mask(shown.to(at::kBool)));
  EXPECT_FALSE(texts_of_mask(at::zeros({2, 6}, at::kLong)));
}

/// The check of a GPU's kernel: it accepts the replacement on the CPU, and nothing that leaves a part out.
TEST(PackedAttention, TheCheckOfTheKernelSeesWhatIsLeftOut) {
  const auto check = [](const std::function<void(PackedTexts&)>& change) {
    const AttentionOfTexts attend = [&](const at::Tensor& query, const at::Tensor& key,
                                        const at::Tensor& value, const PackedTexts& texts,
                                        const AttentionWeights& weights) {
      PackedTexts own = texts;
      change(own);
      return attend_list(query, key, value, own, weights);
    };
    check_attention_of_texts(attend, at::kFloat, at::kCPU, 8);
  };
  EXPECT_NO_THROW(check([](PackedTexts&) {}));
  EXPECT_THROW(check([](PackedTexts& texts) { texts.causal = true; }), Error);
  EXPECT_THROW(check([](PackedTexts& texts) { texts.causal = false; }), Error);
  EXPECT_THROW(check([](PackedTexts& texts) { texts.before.reset(); }), Error);
  EXPECT_THROW(check([](PackedTexts& texts) { texts.after.reset(); }), Error);
  EXPECT_THROW(check([](PackedTexts& texts) {
                 if (texts.longest > 8) texts.lengths = {73};
               }),
               Error);
}

/// Nor one that drops nothing, or other weights in backward; random numbers stay as they were.
TEST(PackedAttention, TheCheckOfTheKernelSeesDropout) {
  const auto check = [](const std::function<void(AttentionWeights&, bool again)>& change) {
    bool again = false;
    check_attention_of_texts(
        [&](const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const PackedTexts& texts,
            const AttentionWeights& weights) {
          AttentionWeights own = weights;
          if (weights.dropout > 0) change(own, std::exchange(again, true));
          return attend_list(query, key, value, texts, own);
        },
        at::kFloat, at::kCPU, 8);
  };
  torch::manual_seed(5);
  EXPECT_NO_THROW(check([](AttentionWeights&, bool) {}));
  const at::Tensor next = at::rand({3});
  torch::manual_seed(5);
  EXPECT_TRUE(at::equal(next, at::rand({3})));
  EXPECT_THROWS(check([](AttentionWeights& weights, bool) { weights.dropout = 0; }), Error,
                "1.00 of the weights");
  EXPECT_THROW(check([](AttentionWeights& weights, bool again) { weights.dropout = again ? 0.4 : 0.5; }),
               Error);
}

/// Where packing pays on a CPU, and with which boundaries; a row of padding behind it is a text, too.
TEST(PackedAttention, LongRowsOfShortTextsArePacked) {
  const at::Tensor weight = at::zeros({4, 4});
  const AttentionHeads heads{8, 64};
  EXPECT_EQ(packed_texts(positions_of({{8, 8}}), weight, heads), nullptr);
  EXPECT_EQ(packed_texts(positions_of({{1024}}), weight, heads), nullptr);
  const auto texts = packed_texts(positions_of({{100, 900, 24}, {512, 512, 0}}), weight, heads);
  ASSERT_NE(texts, nullptr);
  EXPECT_EQ(texts->lengths, (std::vector<std::int64_t>{100, 900, 24, 512, 512}));
  EXPECT_GE(texts->longest, 900);
  EXPECT_TRUE(at::equal(texts->begins, at::tensor({0, 100, 1000, 1024, 1536, 2048}, at::kInt)));
  EXPECT_EQ(whole_rows(at::zeros({2, 256}), weight, heads, 128), nullptr);
  const auto rows = whole_rows(at::zeros({2, 2048}), weight, heads, 128);
  ASSERT_NE(rows, nullptr);
  EXPECT_TRUE(at::equal(rows->begins, at::tensor({0, 2048, 4096}, at::kInt)));
  EXPECT_EQ(unpadded_texts(at::ones({2, 2048}, at::kLong), weight, heads), nullptr);
}

/// What is recorded as a CUDA graph must not wait for the number of texts, and has masks.
TEST(PackedAttention, RecordableWorkWaitsForNothing) {
  const at::Tensor weight = at::zeros({4, 4}), position_ids = positions_of({{100, 900, 24}});
  const AttentionHeads heads{8, 64};
  {
    const comm::RecordableWork recordable;
    EXPECT_EQ(packed_texts(position_ids, weight, heads), nullptr);
    EXPECT_NE(whole_rows(at::zeros({2, 2048}), weight, heads, 128), nullptr);
  }
  EXPECT_NE(packed_texts(position_ids, weight, heads), nullptr);
}

DecoderForCausalLM long_decoder(const std::string& family) {
  auto config = DecoderConfig::of(family);
  config.vocab_size = 50;
  config.hidden_size = 64;
  config.intermediate_size = 64;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 16;
  config.padding_idx.reset();
  config.layers.resize(2);
  DecoderForCausalLM model(config);
  fill(*model);
  model->eval();
  return model;
}

TEST(PackedAttention, TextsOfADecoderAreAsAlone) {
  const at::NoGradGuard no_grad;
  auto model = long_decoder("llama");
  const at::Tensor ids = at::arange(900).mul(7).remainder(50).view({1, 900});
  const at::Tensor position_ids = positions_of({{300, 250, 350}});
  ASSERT_NE(packed_texts(position_ids, ids, {4, 16}), nullptr);
  const at::Tensor logits = model->forward(ids, {}, position_ids);
  std::int64_t begin = 0;
  for (const std::int64_t length : {300, 250, 350}) {
    const at::Tensor alone = model->forward(ids.narrow(1, begin, length));
    EXPECT_LT((logits.narrow(1, begin, length) - alone).abs().max().item<double>(), 1e-4) << begin;
    begin += length;
  }
}

/// With an attention_mask there is a mask of all pairs on the CPU, without it there are blocks.
TEST(PackedAttention, WindowsOfModelsAreThoseOfTheMask) {
  const at::NoGradGuard no_grad;
  const at::Tensor ids = at::arange(2 * 900).mul(7).remainder(50).view({2, 900});
  auto decoder = long_decoder("llama");
  auto config = decoder->config();
  for (auto& layer : config.layers) layer.window = 40;
  DecoderForCausalLM windowed(config);
  fill(*windowed);
  windowed->eval();
  ASSERT_NE(whole_rows(ids, windowed->head().weight, {4, 16}, 40), nullptr);
  const at::Tensor found = windowed->forward(ids), masked = windowed->forward(ids, at::ones_like(ids));
  EXPECT_LT((found - masked).abs().max().item<double>(), 1e-4);
  EXPECT_GT((found - decoder->forward(ids)).abs().max().item<double>(), 1e-3);

  auto modern = EncoderConfig::of("modernbert");
  modern.vocab_size = 50;
  modern.pad_token_id.reset();
  modern.hidden_size = modern.intermediate_size = 64;
  modern.num_hidden_layers = 3;
  modern.num_attention_heads = 4;
  modern.modern.local_attention = 32;
  EncoderModel encoder(modern);
  fill(*encoder);
  encoder->eval();
  ASSERT_NE(whole_rows(ids, encoder->word_embeddings(), {4, 16}, 16), nullptr);
  const auto state = [&](const at::Tensor& mask) { return encoder->forward(ids, mask).last_hidden_state; };
  EXPECT_LT((state({}) - state(at::ones_like(ids))).abs().max().item<double>(), 1e-4);
}

/// What docs/models.md says of LibTorch: on a CPU there is no kernel for lists of texts.
TEST(PackedAttention, LibTorchHasNoKernelForListsOfTextsOnACpu) {
  const auto has_cpu_kernel = [](const char* name) {
    const auto found = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
    return found.hasKernelForDispatchKey(c10::DispatchKey::CPU);
  };
  EXPECT_FALSE(has_cpu_kernel("aten::_flash_attention_forward"));
  EXPECT_FALSE(has_cpu_kernel("aten::_efficient_attention_forward"));
  EXPECT_TRUE(has_cpu_kernel("aten::_scaled_dot_product_flash_attention_for_cpu"));
  for (const auto& argument : c10::Dispatcher::singleton()
                                  .findSchemaOrThrow("aten::_scaled_dot_product_flash_attention_for_cpu", "")
                                  .schema()
                                  .arguments())
    EXPECT_EQ(argument.name().find("cum_seq"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::models
