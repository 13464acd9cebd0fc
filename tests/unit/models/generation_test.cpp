#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/models/bart.hpp"
#include "lockstep/models/generation.hpp"
#include "lockstep/models/gpt2.hpp"
#include "lockstep/parallel/module_tensors.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep::models {
namespace {

at::Tensor row(std::initializer_list<std::int64_t> tokens) {
  return at::tensor(std::vector<std::int64_t>(tokens), at::kLong).unsqueeze(0);
}

/// A model of six tokens that likes 3 best, then 5, whatever came before.
TokenModel likes_three() {
  return {.next =
              [](const at::Tensor& tokens) {
                return at::tensor({0.0, 0.0, 0.0, 3.0, 0.0, 2.0}).expand({tokens.size(0), 6});
              },
          .reorder = [](const at::Tensor&) {}};
}

/// As transformers' generate() for these logits.
TEST(Generation, ForcesTheFirstAndTheLastToken) {
  GenerationConfig config{.max_new_tokens = 4, .forced_bos_token_id = 1, .forced_eos_token_id = 4};
  for (const bool sampled : {false, true}) {
    config.do_sample = sampled;
    config.top_k = 1;
    EXPECT_TRUE(at::equal(generate(likes_three(), row({2}), config), row({2, 1, 3, 3, 4})));
  }
  config.do_sample = false;
  config.num_beams = 3;
  EXPECT_TRUE(at::equal(generate(likes_three(), row({2}), config), row({2, 1, 3, 3, 4})));
  // The first one is forced only behind a start token.
  EXPECT_TRUE(at::equal(generate(likes_three(), row({2, 2}), config), row({2, 2, 3, 3, 3, 4})));
  config.max_new_tokens = 1;
  EXPECT_TRUE(at::equal(generate(likes_three(), row({2}), config), row({2, 4})));
}

TEST(Generation, ATextThatEndsEarlierIsNotForced) {
  const GenerationConfig config{
      .max_new_tokens = 3, .eos_token_id = 3, .pad_token_id = 0, .forced_eos_token_id = 4};
  EXPECT_TRUE(at::equal(generate(likes_three(), row({2}), config), row({2, 3})));
}

/// As transformers' generate() for these logits; the first end token is also the padding.
TEST(Generation, AnyOfSeveralTokensEndsAText) {
  const TokenModel by_last = {.next =
                                  [](const at::Tensor& tokens) {
                                    return at::one_hot((tokens.select(1, -1) + 1) % 6, 6).to(at::kFloat) * 9;
                                  },
                              .reorder = [](const at::Tensor&) {}};
  const at::Tensor rows = at::tensor({0, 2, 1}, at::kLong).unsqueeze(1);
  GenerationConfig config{.max_new_tokens = 3, .eos_token_id = {4, 2}};
  const at::Tensor expected = at::tensor({0, 1, 2, 2, 3, 4, 1, 2, 4}, at::kLong).view({3, 3});
  EXPECT_TRUE(at::equal(generate(by_last, rows, config), expected));
  config.num_beams = 2;
  EXPECT_TRUE(at::equal(generate(by_last, rows, config), expected));
}

TEST(Generation, AForcedTokenMustBeInTheVocabulary) {
  const GenerationConfig config{.max_new_tokens = 1, .forced_eos_token_id = 6};
  EXPECT_THROWS(generate(likes_three(), row({2}), config), UsageError,
                "forced token 6 is out of range: the model has 6 tokens");
}

Gpt2Config tiny_gpt2() {
  return {.vocab_size = 11, .n_positions = 8, .n_embd = 4, .n_layer = 1, .n_head = 1, .initializer_range = 2};
}

TEST(Generation, TextsOfAGpt2ArePaddedWithItsPaddingToken) {
  torch::manual_seed(0);
  Gpt2Config config = tiny_gpt2();
  config.pad_token_id = 6;
  Gpt2LMHeadModel model(config);
  model->eval();
  const at::Tensor start = at::arange(11).unsqueeze(1);
  const at::Tensor endless = generate(model, start, {.max_new_tokens = 2, .eos_token_id = 100});
  const auto end = endless[0][1].item<std::int64_t>();
  const at::Tensor texts = generate(model, start, {.max_new_tokens = 2, .eos_token_id = end});
  ASSERT_EQ(texts.size(1), 3) << "all texts end with the first token";
  EXPECT_EQ(texts[0][2].item<std::int64_t>(), 6);
}

TEST(Generation, AGpt2sPaddingTokenIsReadAndSaved) {
  const testing::TemporaryFolder folder;
  testing::write_bytes(folder.path() / "config.json", R"({"model_type": "gpt2", "pad_token_id": 6})");
  const auto config = Gpt2Config::from_file(folder.path());
  EXPECT_EQ(config.pad_token_id, 6);
  EXPECT_TRUE(testing::contains_all(config.to_json(), {"\"pad_token_id\": 6"}));
  testing::write_bytes(folder.path() / "config.json", R"({"model_type": "gpt2", "pad_token_id": -1})");
  EXPECT_EQ(Gpt2Config::from_file(folder.path()).pad_token_id, std::nullopt);
}

TEST(Generation, EndTokensAreReadAsByTransformers) {
  const testing::TemporaryFolder folder;
  const auto read = [&](const std::string& fields) {
    testing::write_bytes(folder.path() / "config.json", "{\"model_type\": \"gpt2\"" + fields + "}");
    return Gpt2Config::from_file(folder.path());
  };
  EXPECT_EQ(read("").eos_token_id, TokenIds{});
  EXPECT_EQ(read(R"(, "eos_token_id": null)").eos_token_id, TokenIds{});
  EXPECT_EQ(read(R"(, "eos_token_id": 3)").eos_token_id, TokenIds{3});
  const auto two = read(R"(, "eos_token_id": [3, 4], "pad_token_id": 5, "bos_token_id": 6)");
  EXPECT_EQ(two.eos_token_id, (TokenIds{3, 4}));
  testing::write_bytes(folder.path() / "again.json", two.to_json());
  EXPECT_EQ(Gpt2Config::from_file(folder.path() / "again.json").eos_token_id, (TokenIds{3, 4}));
  EXPECT_THROWS(read(R"(, "eos_token_id": [3, -4])"), DataError, "'eos_token_id' is [3,-4]", "a list");
  testing::write_bytes(folder.path() / "generation_config.json", R"({"eos_token_id": [7, 8]})");
  const auto others = read(R"(, "eos_token_id": 3, "pad_token_id": 5, "bos_token_id": 6)");
  EXPECT_EQ(others.eos_token_id, (TokenIds{7, 8}));
  EXPECT_EQ(others.pad_token_id, std::nullopt);
  EXPECT_EQ(others.bos_token_id, 6);
}

TEST(Generation, ABartsForcedTokensAreReadAsByTransformers) {
  const testing::TemporaryFolder folder;
  const auto read = [&](const std::string& fields) {
    testing::write_bytes(folder.path() / "config.json", "{\"model_type\": \"bart\"" + fields + "}");
    return BartConfig::from_file(folder.path());
  };
  EXPECT_EQ(read("").forced_eos_token_id, std::nullopt);
  EXPECT_EQ(read("").forced_bos_token_id, std::nullopt);
  const auto both = read(R"(, "forced_eos_token_id": 7, "forced_bos_token_id": 0)");
  EXPECT_EQ(both.forced_eos_token_id, 7);
  EXPECT_EQ(both.forced_bos_token_id, 0);
  EXPECT_TRUE(
      testing::contains_all(both.to_json(), {"\"forced_bos_token_id\": 0", "\"forced_eos_token_id\": 7"}));
  testing::write_bytes(folder.path() / "generation_config.json",
                       R"({"forced_bos_token_id": 3, "eos_token_id": [2, 9]})");
  EXPECT_EQ(read(R"(, "forced_eos_token_id": 7)").forced_eos_token_id, std::nullopt);
  EXPECT_EQ(read("").eos_token_id, (TokenIds{2, 9}));
  EXPECT_EQ(read("").forced_bos_token_id, 3);
}

TEST(Generation, ABartForcesTheTokensOfItsConfiguration) {
  BartConfig config{.vocab_size = 11,
                    .max_position_embeddings = 8,
                    .d_model = 4,
                    .encoder_layers = 1,
                    .encoder_attention_heads = 1,
                    .encoder_ffn_dim = 4,
                    .decoder_layers = 1,
                    .decoder_attention_heads = 1,
                    .decoder_ffn_dim = 4};
  config.forced_bos_token_id = 5;
  config.forced_eos_token_id = 6;
  BartForConditionalGeneration model(config);
  model->eval();
  const at::Tensor texts = generate(model, row({3, 4}), {}, {.max_new_tokens = 2});
  EXPECT_TRUE(at::equal(texts, row({2, 5, 6})));
  EXPECT_THROWS(generate(model, row({3, 4}), {}, {.max_new_tokens = 9, .eos_token_id = 100}), UsageError,
                "this BART generates at most 8 tokens; these would be 9");
}

TEST(Generation, HeadsOfOtherTasksInAGpt2sFileAreIgnored) {
  const testing::TemporaryFolder folder;
  Gpt2LMHeadModel model(tiny_gpt2());
  save_pretrained(model, folder.path());
  auto file = load_file(folder.path() / "model.safetensors").tensors;
  for (const char* head : {"classifier", "qa_outputs", "multiple_choice_head.summary", "score"})
    file[std::string(head) + ".weight"] = at::ones({2, 4});
  save_file(file, folder.path() / "model.safetensors");
  Gpt2LMHeadModel again = load_gpt2(folder.path());
  model->eval();
  again->eval();
  EXPECT_TRUE(at::equal(again(row({1, 2})), model(row({1, 2}))));
}

}  // namespace
}  // namespace lockstep::models
