#include "lockstep/models/token_losses.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <torch/nn/functional/loss.h>
#include <torch/utils.h>
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/data/collate.hpp"
#include "lockstep/models/bart.hpp"
#include "lockstep/models/decoder.hpp"
#include "lockstep/models/gpt2.hpp"
#include "lockstep/models/opt.hpp"
#include "lockstep/models/token_loss_model.hpp"
#include "lockstep/models/trainer_model.hpp"
#include "lockstep/train/mixed_precision.hpp"
#include "lockstep/train/trainer.hpp"
#include "support/accelerators.hpp"
#include "support/peak_bytes.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"
#include "unit/models/golden_models.hpp"

namespace lockstep::models {
namespace {

using Tensors = std::vector<at::Tensor>;

constexpr std::int64_t kWords = 37, kWidth = 8;

/// States and labels of 2 texts of 9 tokens, of which some labels do not count.
struct LossCase {
  TokenHead head;
  at::Tensor states, labels;

  explicit LossCase(at::ScalarType dtype = at::kFloat) {
    torch::manual_seed(3);
    head.weight = torch::randn({kWords, kWidth}).to(dtype).requires_grad_();
    states = torch::randn({2, 9, kWidth}).to(dtype).requires_grad_();
    labels = torch::arange(18).mul(5).remainder(kWords).view({2, 9});
    labels[0][4] = labels[1][0] = labels[1][8] = kNoLabel;
  }

  /// The loss and the gradients by states and weight.
  Tensors run(const TokenLossOptions& options, double factor = 1) const {
    const TokenLosses losses = token_losses(head, states, labels, options);
    EXPECT_EQ(losses.loss_weight.item<std::int64_t>(), 15);
    auto all = torch::autograd::grad({losses.loss_sum * factor}, {states, head.weight});
    all.insert(all.begin(), losses.loss_sum.detach());
    return all;
  }
};

void expect_close(const Tensors& some, const Tensors& others, double tolerance) {
  ASSERT_EQ(some.size(), others.size());
  for (std::size_t i = 0; i < some.size(); ++i) {
    EXPECT_EQ(some[i].scalar_type(), others[i].scalar_type()) << i;
    const double scale = others[i].abs().max().item<double>();
    EXPECT_LE((some[i] - others[i]).abs().max().item<double>(), tolerance * scale) << i;
  }
}

constexpr std::int64_t kPartSizes[] = {1, kWords, 4 * kWords, 17 * kWords};

TEST(TokenLossesOf, PartsAreThoseOfWholeLogits) {
  for (const double smoothing : {0.0, 0.2}) {
    for (const auto& [divisor, softcap] : {std::pair(1.0, 0.0), std::pair(3.0, 2.0)}) {
      LossCase one(at::kDouble);
      one.head.divisor = divisor;
      one.head.softcap = softcap;
      one.head.bias = torch::randn({1, kWords}, at::kDouble);
      const auto whole = one.run({.label_smoothing = smoothing}, 0.3);
      for (const std::int64_t size : kPartSizes)
        expect_close(one.run({.label_smoothing = smoothing, .logits_at_a_time = size}, 0.3), whole, 1e-13);
    }
  }
}

/// What programs computed before: the limit changes no bit of smaller batches.
TEST(TokenLossesOf, WholeLogitsHaveTheBitsOfCrossEntropy) {
  const LossCase one;
  const auto options = torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum);
  const at::Tensor logits = at::linear(one.states, one.head.weight);
  const at::Tensor loss =
      torch::nn::functional::cross_entropy(logits.view({-1, kWords}), one.labels.flatten(), options);
  auto expected = torch::autograd::grad({loss}, {one.states, one.head.weight});
  expected.insert(expected.begin(), loss.detach());
  const auto losses = one.run({});
  for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_TRUE(at::equal(losses[i], expected[i])) << i;
  const auto parts = one.run({.logits_at_a_time = 4 * kWords}),
             again = one.run({.logits_at_a_time = 4 * kWords});
  for (std::size_t i = 0; i < parts.size(); ++i) EXPECT_TRUE(at::equal(parts[i], again[i])) << i;
}

/// bf16: of the weights, and by autocast, whose weights and gradients are float32. Parts add the weight's
/// gradient in float32. fp16: gradients of a sum of many classes vanish without the scaling of the loss.
TEST(TokenLossesOf, PartsIn16BitsAreThoseOfWholeLogits) {
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    const LossCase one(dtype);
    const double scale = dtype == at::kHalf ? 1024 : 1;
    expect_close(one.run({.logits_at_a_time = 4 * kWords}, scale), one.run({}, scale), 0.02);
  }
  const LossCase one;
  const auto under_autocast = [&](std::int64_t size) {
    const Autocast cast(at::kCPU, MixedPrecision::bf16);
    return one.run({.logits_at_a_time = size});
  };
  const auto whole = under_autocast(0), parts = under_autocast(4 * kWords);
  EXPECT_EQ(whole[2].scalar_type(), at::kFloat);
  expect_close(parts, whole, 0.02);
  EXPECT_FALSE(at::equal(whole[2], one.run({})[2]));
}

/// 100,000 classes of one probability: each gradient is 1e-5, where float16 has two digits, and with the
/// scale of a GradScaler all of them.
TEST(TokenLossesOf, Float16PartsSeeTheScaleOfTheLoss) {
  TokenHead head{.weight = at::zeros({100000, 2}, at::kHalf).requires_grad_()};
  const at::Tensor states = at::ones({1, 4, 2}, at::kHalf), labels = at::zeros({1, 4}, at::kLong);
  const auto losses = token_losses(head, states, labels, {.logits_at_a_time = 100000});
  (losses.loss_sum * 16384).backward();
  EXPECT_NEAR(head.weight.grad()[7][0].item<double>() / 16384 / 4e-5, 1, 1e-3);
}

TEST(TokenLossesOf, WhatIsFrozenGetsNoGradient) {
  const TokenLossOptions parts{.logits_at_a_time = 4 * kWords};
  LossCase one;
  const auto all = one.run(parts);
  one.head.weight.requires_grad_(false);
  token_losses(one.head, one.states, one.labels, parts).loss_sum.backward();
  EXPECT_TRUE(at::equal(one.states.grad(), all[1]));
  EXPECT_FALSE(one.head.weight.grad().defined());
  LossCase other;
  other.states.requires_grad_(false);
  token_losses(other.head, other.states, other.labels, parts).loss_sum.backward();
  EXPECT_TRUE(at::equal(other.head.weight.grad(), all[2]));
  other.head.weight.requires_grad_(false);
  EXPECT_FALSE(token_losses(other.head, other.states, other.labels, parts).loss_sum.requires_grad());
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(at::equal(token_losses(one.head, one.states, one.labels, parts).loss_sum, all[0]));
}

TEST(TokenLossesOf, ARetainedGraphGivesTheSameTwice) {
  const LossCase one;
  const auto losses = token_losses(one.head, one.states, one.labels, {.logits_at_a_time = 4 * kWords});
  const Tensors inputs{one.states, one.head.weight};
  const at::Tensor loss = losses.loss_sum * 0.7;
  const auto first = torch::autograd::grad({loss}, inputs, {}, /*retain_graph=*/true);
  const Tensors copies{first[0].clone(), first[1].clone()};
  const auto second = torch::autograd::grad({loss}, inputs);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(at::equal(copies[i], second[i])) << i;
  EXPECT_ANY_THROW(torch::autograd::grad({losses.loss_sum}, inputs));
}

TEST(TokenLossesOf, PredictionsAndLogitsAreWhatWasAsked) {
  const LossCase one;
  const at::Tensor logits = logits_of(one.head, one.states);
  for (const std::int64_t size : {std::int64_t{0}, 4 * kWords}) {
    const auto losses =
        token_losses(one.head, one.states, one.labels, {.logits_at_a_time = size, .predictions = true});
    EXPECT_TRUE(at::equal(losses.predictions, logits.argmax(-1)));
    EXPECT_FALSE(losses.logits.defined());
  }
  const auto both = token_losses(one.head, one.states, one.labels, {.logits_at_a_time = 1, .logits = true});
  EXPECT_TRUE(at::equal(both.logits, logits));
  EXPECT_FALSE(both.predictions.defined());
  EXPECT_TRUE(at::equal(token_losses(one.head, one.states, {}, {.logits = true}).logits, logits));
  EXPECT_THROWS(token_losses(one.head, one.states, {}), UsageError, "no labels");
  EXPECT_THROWS(token_losses(one.head, one.states, one.labels.narrow(1, 0, 5)), UsageError, "[2, 5]",
                "[2, 9, 8]");
  EXPECT_TRUE(
      at::equal(next_labels(at::arange(6).view({2, 3})), at::tensor({1, 2, -100, 4, 5, -100}).view({2, 3})));
}

/// All logits of 512 tokens are 262 MB here, and the loss makes several of this size of them.
TEST(TokenLossesOf, AVocabularyOf128000NeedsNoWholeLogits) {
  constexpr std::int64_t kMany = 128000, kTokens = 512;
  const TokenHead head{.weight = at::zeros({kMany, 4}).requires_grad_()};
  const at::Tensor states = at::ones({1, kTokens, 4}).requires_grad_();
  const at::Tensor labels = at::arange(kTokens).unsqueeze(0);
  const auto peak_of = [&](std::int64_t size, bool trains) {
    const at::AutoGradMode mode(trains);
    return testing::PeakBytes::of([&] {
      const auto losses =
          token_losses(head, states, labels, {.logits_at_a_time = size, .predictions = !trains});
      if (trains) losses.loss_sum.backward();
    });
  };
  constexpr std::int64_t kLogits = kMany * kTokens * 4;
  EXPECT_GT(peak_of(std::int64_t{1} << 30, true), 2 * kLogits);
  // Three tensors of a part of 16 tokens, and gradients of the weight.
  EXPECT_LT(peak_of(kMany * 16, true), kLogits / 6);
  EXPECT_LT(peak_of(kMany * 16, false), kLogits / 8);
  // The default.
  EXPECT_LT(peak_of(0, true), 5 * kLogits / 2);
}

template <class Model>
CausalLM as_causal(const Model& model) {
  return CausalLM(std::static_pointer_cast<CausalLMImpl>(model.ptr()));
}

/// Eight texts of 64 tokens.
class Counting final : public Dataset {
 public:
  std::int64_t size() const override { return 8; }
  Example get(std::int64_t index, const SampleContext&) const override {
    Example example;
    example.set("input_ids", at::arange(64) + index);
    example.set("labels", at::arange(64) + index);
    return example;
  }
};

/// All logits of its 512 tokens are 262 MB, too; an evaluation has those of a batch, and keeps none.
TEST(TokenLossesOf, AnEvaluationKeepsNoLogits) {
  constexpr std::int64_t kMany = 128000, kTokensOfBatch = 64;
  Gpt2LMHeadModel model(
      Gpt2Config{.vocab_size = kMany, .n_positions = 64, .n_embd = 8, .n_layer = 1, .n_head = 1});
  const testing::TemporaryFolder folder;
  TrainingArguments args{.output_dir = (folder.path() / "out").string(), .report_to = {"none"}};
  args.per_device_eval_batch_size = 1;
  args.disable_tqdm = true;
  const Accelerator accelerator(World::single(), {.device = "cpu"});
  Trainer trainer(accelerator, args,
                  {.model = trainer_model(as_causal(model)), .eval_dataset = std::make_shared<Counting>()});
  LogValues values;
  const auto peak = testing::PeakBytes::of([&] { values = trainer.evaluate(); });
  EXPECT_NEAR(values.at(0).second, std::log(static_cast<double>(kMany)), 0.1) << values.at(0).first;
  EXPECT_LT(peak, 4 * kMany * kTokensOfBatch * 4);
}

/// On the second of two ranks, the second batch has no labels.
class LabelsOfOneRank final : public Dataset {
 public:
  std::int64_t size() const override { return 8; }
  Example get(std::int64_t index, const SampleContext&) const override {
    Example example;
    example.set("input_ids", at::arange(6) + index);
    example.set("labels", index == 3 ? at::full({6}, kNoLabel) : at::arange(6) + index);
    example.indices = {index};
    return example;
  }
};

/// It is named on its rank, and the other one does not wait for it.
TEST(LanguageModels, ABatchWithoutATrainedTokenEndsTheTraining) {
  const testing::TemporaryFolder folder;
  testing::run_accelerators(2, [&](Accelerator& accelerator) {
    Gpt2LMHeadModel model(
        Gpt2Config{.vocab_size = 50, .n_positions = 8, .n_embd = 8, .n_layer = 1, .n_head = 1});
    TrainingArguments args{.output_dir = (folder.path() / "out").string(), .report_to = {"none"}};
    args.per_device_train_batch_size = 1;
    args.train_sampling_strategy = SamplingStrategy::sequential;
    args.save_strategy = SaveStrategy::no;
    args.disable_tqdm = true;
    Trainer trainer(accelerator, args,
                    {.model = trainer_model(as_causal(model)),
                     .train_dataset = std::make_shared<LabelsOfOneRank>(),
                     .data_collator = causal_lm_collate()});
    if (accelerator.process_index() == 1) {
      EXPECT_THROWS(trainer.train(), DataError, "(number 3)", "has a token to train on");
    } else {
      EXPECT_THROWS(trainer.train(), Error, "rank 1");
    }
  });
}

/// Every language model. True if a bit of losses in parts differs: of small models all may be equal, on some
/// processors.
template <class Model, class Losses>
bool expect_parts(const Model& model, std::int64_t words, const Losses& losses_of) {
  model.ptr()->eval();
  fill(*model.ptr());
  const auto run = [&](std::int64_t size) {
    model.ptr()->zero_grad();
    const TokenLosses losses =
        losses_of({.label_smoothing = 0.1, .logits_at_a_time = size, .predictions = true});
    losses.loss_sum.backward();
    Tensors all = {losses.loss_sum.detach(), losses.predictions};
    for (const auto& parameter : model->parameters()) all.push_back(parameter.grad().clone());
    return all;
  };
  const auto whole = run(0), parts = run(3 * words);
  EXPECT_TRUE(at::equal(parts[1], whole[1]));
  for (std::size_t i = 0; i < whole.size(); ++i)
    EXPECT_TRUE(at::allclose(parts[i], whole[i], 1e-4, 1e-5)) << i;
  return !std::ranges::equal(parts, whole,
                             [](const auto& part, const auto& one) { return at::equal(part, one); });
}

bool expect_parts_of_causal(const CausalLM& model, std::int64_t words) {
  at::Tensor labels = ids(2, 12, words).clone();
  labels[0][3] = kNoLabel;
  const bool differ = expect_parts(model, words, [&](const TokenLossOptions& options) {
    return model.ptr()->token_losses(labels, options, ids(2, 12, words));
  });
  const at::Tensor tokens = ids(2, 12, words);
  const auto losses = model.ptr()->token_losses(tokens, {}, tokens);
  const at::Tensor mean = causal_lm_loss(model.ptr()->forward(tokens), tokens);
  EXPECT_NEAR((losses.loss_sum / losses.loss_weight).item<double>(), mean.item<double>(), 1e-5);
  EXPECT_EQ(losses.loss_weight.item<std::int64_t>(), 22);
  return differ;
}

TEST(LanguageModels, LossesInPartsAreThoseOfWholeLogits) {
  int differ = 0;
  for (const auto& [name, text] : golden_configs()) {
    SCOPED_TRACE(name);
    const testing::TemporaryFolder folder;
    testing::write_bytes(folder.path() / "config.json", text);
    const auto config = DecoderConfig::from_file(folder.path());
    differ += expect_parts_of_causal(as_causal(DecoderForCausalLM(config)), config.vocab_size) ? 1 : 0;
  }
  expect_parts_of_causal(as_causal(Gpt2LMHeadModel(Gpt2Config{
                             .vocab_size = 50, .n_positions = 16, .n_embd = 8, .n_layer = 1, .n_head = 2})),
                         50);
  expect_parts_of_causal(as_causal(OptForCausalLM(OptConfig{.vocab_size = 50,
                                                            .hidden_size = 8,
                                                            .num_hidden_layers = 1,
                                                            .ffn_dim = 16,
                                                            .max_position_embeddings = 16,
                                                            .num_attention_heads = 2,
                                                            .word_embed_proj_dim = 8})),
                         50);
  EXPECT_GT(differ, 0) << "they are in parts";
}

BartForConditionalGeneration bart_for_losses() {
  return BartForConditionalGeneration(BartConfig{.vocab_size = 50,
                                                 .max_position_embeddings = 16,
                                                 .d_model = 8,
                                                 .encoder_layers = 1,
                                                 .encoder_attention_heads = 2,
                                                 .encoder_ffn_dim = 16,
                                                 .decoder_layers = 1,
                                                 .decoder_attention_heads = 2,
                                                 .decoder_ffn_dim = 16});
}

TEST(LanguageModels, LossesOfPairsInPartsAreThoseOfWholeLogits) {
  const auto bart = bart_for_losses();
  const Seq2SeqLM model(std::static_pointer_cast<Seq2SeqLMImpl>(bart.ptr()));
  at::Tensor labels = ids(2, 7, 50).clone();
  labels[1][6] = kNoLabel;
  expect_parts(model, 50, [&](const TokenLossOptions& options) {
    return model.ptr()->token_losses(labels, options, ids(2, 9, 50));
  });
  EXPECT_THROWS(model.ptr()->token_losses({}, {.logits = true}, ids(2, 9, 50)), UsageError,
                "decoder_input_ids");
}

/// The wrapper has the model's parameters, buffers and mode.
TEST(LanguageModels, ATokenLossModelIsTheModelUnderItsNames) {
  const auto bart = bart_for_losses();
  const Seq2SeqLM model(std::static_pointer_cast<Seq2SeqLMImpl>(bart.ptr()));
  TokenLossModel with_loss(model);
  const auto names_of = [](const auto& dict) {
    std::vector<std::pair<std::string, const void*>> names;
    for (const auto& entry : dict) names.emplace_back(entry.key(), entry.value().unsafeGetTensorImpl());
    return names;
  };
  EXPECT_EQ(names_of(with_loss->named_parameters()), names_of(bart->named_parameters()));
  EXPECT_EQ(names_of(with_loss->named_buffers()), names_of(bart->named_buffers()));
  EXPECT_FALSE(bart->named_buffers().is_empty());
  with_loss->eval();
  EXPECT_FALSE(bart->is_training());
  with_loss->train();
  EXPECT_TRUE(bart->is_training());
}

}  // namespace
}  // namespace lockstep::models
