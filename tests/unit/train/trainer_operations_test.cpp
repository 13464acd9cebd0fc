// Floating-point operations as transformers' Trainer counts them: 6 per token and parameter element, without
// embeddings.

#include <torch/csrc/jit/api/module.h>
#include <torch/nn/modules/embedding.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/models/bart.hpp"
#include "lockstep/models/bert.hpp"
#include "lockstep/models/gpt2.hpp"
#include "lockstep/train/callbacks.hpp"
#include "unit/train/small_trainings.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::arguments;
using testing::small_model;
using testing::StopAt;
using testing::TemporaryFolder;
using testing::train_on;

/// The operations of a batch, without running the model.
template <class Module>
double operations(Module module, const Batch& batch) {
  const TemporaryFolder folder;
  const auto nothing = [](auto& /*model*/, const Batch& /*batch*/) { return Batch(); };
  return Trainer(arguments(folder), {.model = wrap_model(module, nothing)}).floating_point_operations(batch);
}

Batch tokens() {
  return {{"labels", at::ones({2, 3}, at::kLong)}, {"input_ids", at::ones({2, 5}, at::kLong)}};
}

/// The numbers are PreTrainedModel.num_parameters(exclude_embeddings=True) of transformers 5.23.
TEST(Operations, OfModelsAreThoseOfTransformers) {
  const models::Gpt2LMHeadModel gpt2(
      models::Gpt2Config{.vocab_size = 11, .n_positions = 16, .n_embd = 8, .n_layer = 1, .n_head = 2});
  EXPECT_EQ(operations(gpt2, tokens()), 6.0 * 10 * 888);
  const models::BertForSequenceClassification bert(models::BertConfig{.vocab_size = 11,
                                                                      .hidden_size = 8,
                                                                      .num_hidden_layers = 1,
                                                                      .num_attention_heads = 2,
                                                                      .intermediate_size = 16,
                                                                      .max_position_embeddings = 16,
                                                                      .num_labels = 3});
  EXPECT_EQ(operations(bert, tokens()), 6.0 * 10 * 715);
  const models::BartForConditionalGeneration bart(models::BartConfig{.vocab_size = 11,
                                                                     .max_position_embeddings = 16,
                                                                     .d_model = 8,
                                                                     .encoder_layers = 1,
                                                                     .encoder_attention_heads = 2,
                                                                     .encoder_ffn_dim = 16,
                                                                     .decoder_layers = 1,
                                                                     .decoder_attention_heads = 2,
                                                                     .decoder_ffn_dim = 16});
  EXPECT_EQ(operations(bart, tokens()), 6.0 * 10 * 1536);
}

/// Python's classes keep their names in a TorchScript file.
TEST(Operations, OfAProgramFromPython) {
  torch::jit::Module words("__torch__.torch.nn.modules.sparse.___torch_mangle_3.Embedding");
  words.register_parameter("weight", at::zeros({7, 2}), /*is_buffer=*/false);
  torch::jit::Module norm("__torch__.torch.nn.modules.normalization.LayerNorm");
  norm.register_parameter("weight", at::ones({2}), /*is_buffer=*/false);
  torch::jit::Module program("__torch__.Program");
  program.register_module("words", words);
  program.register_module("last", norm);
  program.register_parameter("scale", at::ones({3}), /*is_buffer=*/false);
  EXPECT_EQ(operations(program, tokens()), 6.0 * 10 * (2 + 3));
  EXPECT_EQ(optim::layer_norms_of(program), std::vector<std::string>{"last."});
}

TEST(Operations, AreNotKnownWithoutTokens) {
  const TemporaryFolder folder;
  Trainer trainer(arguments(folder), {.model = small_model()});
  EXPECT_EQ(trainer.floating_point_operations({{"x", at::ones({2, 3})}}), 0);
}

/// An embedding followed by three numbers, one of which is not trained.
struct TokenNetImpl : torch::nn::Module {
  TokenNetImpl() {
    register_module("words", words);
    register_module("linear", linear);
    linear->bias.requires_grad_(false);
    const torch::NoGradGuard no_grad;
    for (auto& parameter : parameters()) parameter.fill_(0.1);
  }
  at::Tensor forward(const at::Tensor& ids) { return linear(words(ids).mean(1)).square().mean(); }

  torch::nn::Embedding words{7, 2};
  torch::nn::Linear linear{2, 1};
};
TORCH_MODULE(TokenNet);

class CountedRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Operations, CountedRanks, ::testing::Values(1, 2));

TEST_P(CountedRanks, AddUpInTheStateAndInTheThroughput) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.gradient_accumulation_steps = 1;
  args.num_train_epochs = 2;
  args.save_strategy = SaveStrategy::epoch;
  args.report_to = {"jsonl"};
  const auto data =
      std::make_shared<TensorDataset>(Batch{{"input_ids", at::arange(80).reshape({16, 5}) % 7}});
  const auto run = [&](std::int64_t stop_at) {
    return train_on(GetParam(), args, [&](const Accelerator&) {
      const ThroughputOptions peak{.peak_flops_per_device = 1e12};
      TrainerComponents parts{.model = wrap_model(TokenNet(),
                                                  [](auto& model, const Batch& batch) {
                                                    return Batch{{"loss", model(batch["input_ids"])}};
                                                  }),
                              .train_dataset = data,
                              .callbacks = {std::make_shared<ThroughputCallback>(peak)}};
      if (stop_at > 0) parts.callbacks.push_back(std::make_shared<StopAt>(stop_at));
      return parts;
    });
  };
  ASSERT_TRUE(run(1).output.preempted);
  const auto last = run(0);
  const double expected = 6.0 * (2 + 1) * 2 * 80;
  EXPECT_EQ(last.state.total_flos, expected);
  EXPECT_EQ(last.logged("total_flos"), std::vector<double>{expected});
  std::ifstream state(fs::path(args.output_dir) / checkpoint_name(last.output.global_step) /
                      kTrainerStateFileName);
  EXPECT_EQ(json::parse(state)["total_flos"], expected);
  std::ifstream metrics(fs::path(args.output_dir) / "runs" / "metrics.jsonl");
  double shares = 0;
  for (std::string line; std::getline(metrics, line);)
    shares += json::parse(line).value("throughput/mfu", 0.0);
  EXPECT_GT(shares, 0);
}

}  // namespace
}  // namespace lockstep
