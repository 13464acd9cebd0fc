// Checkpoints and saved models of a frozen model with an adapter.

#include <ATen/ATen.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/embedding.h>

#include <filesystem>
#include <map>
#include <string>

#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/safetensors_source.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/collate.hpp"
#include "lockstep/models/auto_model.hpp"
#include "lockstep/models/lora.hpp"
#include "lockstep/models/trainer_model.hpp"
#include "lockstep/train/trainer.hpp"
#include "support/accelerators.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"
#include "train/model_content.hpp"
#include "train/state/sharded_state.hpp"
#include "unit/models/golden_models.hpp"
#include "unit/parallel/sharded_net.hpp"

namespace lockstep::models {
namespace {

using testing::TemporaryFolder;
using Losses = std::vector<double>;
namespace fs = std::filesystem;

/// A frozen base with adapters in float32, the same on every rank.
DecoderForCausalLM small_adapted(at::ScalarType dtype = at::kBFloat16, double alpha = 4) {
  DecoderForCausalLM model(testing::decoder_config("llama"));
  fill(*model);
  model->to(dtype);
  add_lora(model, {.r = 2,
                   .lora_alpha = alpha,
                   .target_modules = "all-linear",
                   .base_model_name_or_path = "models/base"});
  const at::NoGradGuard no_grad;
  int number = 1;
  for (auto& parameter : model->parameters())
    if (parameter.requires_grad())
      parameter.copy_(
          at::arange(parameter.numel()).mul(0.31 * ++number).sin().mul(0.1).view(parameter.sizes()));
  return model;
}

std::vector<at::Tensor> trained_in(const DecoderForCausalLM& model) {
  std::vector<at::Tensor> trained;
  for (auto& parameter : model->parameters())
    if (parameter.requires_grad()) trained.push_back(parameter);
  return trained;
}

/// A training of an adapter with an Accelerator. All ranks have the same data, so that means over 2 or 4 of
/// them are exact.
class AdapterJob {
 public:
  explicit AdapterJob(Accelerator& accelerator, DecoderForCausalLM adapted = small_adapted())
      : net(adapted),
        optimizer(trained_in(net), {.lr = 0.05}),
        accelerator_(accelerator),
        model(accelerator.prepare(net)),
        accelerated(accelerator.prepare(optimizer)) {}

  Losses train(int steps) {
    Losses losses;
    for (; steps > 0; --steps, ++done_) {
      const at::Tensor tokens = torch::arange(16).mul(done_ + 3).remainder(37).view({2, 8});
      const at::Tensor loss = causal_lm_loss(model(tokens).to(at::kFloat), tokens);
      accelerated.zero_grad();
      accelerator_.backward(loss);
      accelerated.step();
      losses.push_back(loss.item<double>());
    }
    return losses;
  }
  void continue_at(int step) { done_ = step; }

  DecoderForCausalLM net;
  optim::AdamW optimizer;

 private:
  Accelerator& accelerator_;
  int done_ = 0;

 public:
  AcceleratedModel<DecoderForCausalLM> model;
  AcceleratedOptimizer accelerated;
};

AcceleratorOptions sharding(bool on) {
  AcceleratorOptions options;
  if (on) options.fsdp_plugin.emplace();
  return options;
}

struct WorldOfRanks {
  int size;
  bool is_sharded;
  bool asynchronous = false;
};

TEST(AdapterCheckpoint, HasTheAdapterAloneAndResumesBitForBitOnAnyRanks) {
  const TemporaryFolder folder;
  std::map<std::uint32_t, int> digests;
  std::string adapter;
  for (const WorldOfRanks from : {WorldOfRanks{1, false}, WorldOfRanks{2, false}, WorldOfRanks{4, true},
                                  WorldOfRanks{2, true, true}, WorldOfRanks{2, false, true}}) {
    const fs::path path = folder / fmt::format("{}{}{}", from.size, from.is_sharded, from.asynchronous);
    Losses wanted;
    testing::run_accelerators(
        from.size,
        [&](Accelerator& accelerator) {
          AdapterJob job(accelerator);
          job.train(3);
          accelerator.save_state(path, {.step = 3}, {.asynchronous = from.asynchronous});
          const Losses rest = job.train(3);
          accelerator.wait_for_save();
          if (accelerator.is_main_process()) wanted = rest;
        },
        sharding(from.is_sharded));
    EXPECT_FALSE(fs::exists(path / "model.safetensors"));
    EXPECT_TRUE(fs::exists(path / kAdapterConfigFileName));
    const auto info = verify_checkpoint(path).info;
    ASSERT_EQ(info.frozen.size(), 1U);
    EXPECT_EQ(info.frozen[0].base, "models/base");
    ++digests[info.frozen[0].crc32c];
    const std::string file = testing::read_bytes(path / kAdapterFileName);
    if (adapter.empty()) adapter = file;
    EXPECT_EQ(file, adapter);
    // It is a folder of PEFT's.
    DecoderForCausalLM other(testing::decoder_config("llama"));
    fill(*other);
    load_adapter(other, path);
    save_adapter(other, folder / "again");
    EXPECT_EQ(testing::read_bytes(folder / "again" / kAdapterFileName), file);
    for (const WorldOfRanks to : {WorldOfRanks{1, false}, WorldOfRanks{2, true}, WorldOfRanks{2, false}}) {
      testing::run_accelerators(
          to.size,
          [&](Accelerator& accelerator) {
            AdapterJob job(accelerator);
            job.train(1);
            accelerator.load_state(path);
            job.continue_at(3);
            EXPECT_EQ(job.train(3), wanted);
            // The digest is still that of the base.
            accelerator.save_state(folder / "next");
            if (accelerator.is_main_process()) {
              EXPECT_EQ(verify_checkpoint(folder / "next").info.frozen.at(0).crc32c, info.frozen[0].crc32c);
            }
          },
          sharding(to.is_sharded));
    }
  }
  EXPECT_EQ(digests.size(), 1U);
}

TEST(AdapterCheckpoint, RefusesAnotherBaseAndNamesBoth) {
  const TemporaryFolder folder;
  Accelerator one(World::single(), {.device = "cpu"});
  {
    AdapterJob job(one);
    one.save_state(folder / "state");
    one.free_memory();
  }
  for (const bool is_sharded : {false, true}) {
    testing::run_accelerators(
        2,
        [&](Accelerator& accelerator) {
          auto other = small_adapted();
          {
            const at::NoGradGuard no_grad;
            other->parameters().front().view(-1)[7].mul_(2);
          }
          AdapterJob job(accelerator, other);
          const auto load = [&] { accelerator.load_state(folder / "state"); };
          const std::string text = accelerator.is_main_process() ? testing::message_of<DataError>(load)
                                                                 : testing::message_of<RemoteError>(load);
          EXPECT_TRUE(testing::contains_all(
              text, {"other frozen weights", "'models/base'", "it was written for", "the program has"}))
              << text;
        },
        sharding(is_sharded));
  }
  AdapterJob wide(one, small_adapted(at::kFloat));
  EXPECT_THROWS(one.load_state(folder / "state"), DataError, "CRC-32C", "same dtype");
  one.free_memory();
  {
    AdapterJob stronger(one, small_adapted(at::kBFloat16, 8));
    EXPECT_THROWS(one.load_state(folder / "state"), DataError, "'lora_alpha': 4", "adapter 8");
    one.free_memory();
  }
  DecoderForCausalLM bare(testing::decoder_config("llama"));
  auto prepared = one.prepare(bare);
  EXPECT_THROWS(one.load_state(folder / "state"), DataError, "adapter", "models::add_lora");
}

TEST(AdapterCheckpoint, SavesFrozenWeightsThatWereWrittenOrTrainedForAWhile) {
  const TemporaryFolder folder;
  for (const bool is_sharded : {false, true}) {
    const fs::path path = folder / (is_sharded ? "sharded" : "whole");
    std::vector<at::Tensor> wanted;
    testing::run_accelerators(
        2,
        [&](Accelerator& accelerator) {
          AdapterJob job(accelerator);
          job.train(1);
          accelerator.save_state(path);
          {
            const auto whole = accelerator.full_parameters(job.model);
            const at::NoGradGuard no_grad;
            job.net->named_parameters()["model.norm.weight"].mul_(3);
          }
          accelerator.save_state(path);
          const auto whole = accelerator.full_parameters(job.model);
          if (!accelerator.is_main_process()) return;
          for (const auto& parameter : job.net->parameters()) wanted.push_back(parameter.detach().clone());
        },
        sharding(is_sharded));
    const auto saved = load_file(path / kAdapterFileName).tensors;
    EXPECT_TRUE(saved.contains("base_model.model.model.norm.weight"));
    EXPECT_FALSE(saved.contains("base_model.model.model.embed_tokens.weight"));
    Accelerator one(World::single(), {.device = "cpu"});
    AdapterJob job(one);
    one.load_state(path);
    const auto parameters = job.net->parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i)
      EXPECT_TRUE(at::equal(parameters[i], wanted.at(i))) << i;
    one.save_state(folder / "again");
    EXPECT_TRUE(load_file(folder / "again" / kAdapterFileName)
                    .tensors.contains("base_model.model.model.norm.weight"));
  }
}

/// A linear layer that can have another one's weight.
class TiedHeadImpl : public models::LinearImpl {
 public:
  using models::LinearImpl::LinearImpl;
  void tie(const at::Tensor& other) { parameters_["weight"] = weight = other; }
};
TORCH_MODULE(TiedHead);

/// A head that is tied to the embedding, statistics in buffers, and a layer that has two names.
class TiedNetImpl : public torch::nn::Module {
 public:
  TiedNetImpl() {
    embedding = register_module("embedding", torch::nn::Embedding(9, 4));
    norm = register_module("norm", torch::nn::BatchNorm1d(4));
    body = register_module("body", models::Linear(4, 4));
    register_module("again", body);
    head = register_module("head", TiedHead(torch::nn::LinearOptions(4, 9).bias(false)));
    head->tie(embedding->weight);
    fill(*this);
  }
  at::Tensor forward(const at::Tensor& tokens) { return head(body(norm(body(embedding(tokens))))); }

  torch::nn::Embedding embedding{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  models::Linear body{nullptr};
  TiedHead head{nullptr};
};
TORCH_MODULE(TiedNet);

TEST(MergeLora, UntiesAHeadThatWasTiedToTheEmbedding) {
  TiedNet net;
  add_lora(net, {.r = 2, .target_modules = {"head", "body"}});
  fill(*net);
  net->eval();
  const at::Tensor tokens = torch::arange(6), answers = net(tokens);
  const at::Tensor embedding = net->embedding->weight.detach().clone();
  merge_lora(net);
  EXPECT_TRUE(at::equal(net->embedding->weight, embedding));
  EXPECT_FALSE(at::equal(net->head->weight, embedding));
  EXPECT_TRUE(at::allclose(net(tokens), answers, 1e-4, 1e-5));
  EXPECT_TRUE(net->named_parameters()["head.weight"].is_same(net->head->weight));
}

TEST(MergeLora, OfAShardedModelIsDoneWithFullParameters) {
  at::Tensor alone;
  {
    auto model = small_adapted();
    merge_lora(model);
    alone = model->forward(torch::arange(8).view({1, 8})).detach();
  }
  testing::run_accelerators(
      2,
      [&](Accelerator& accelerator) {
        auto model = small_adapted();
        auto prepared = accelerator.prepare(model);
        EXPECT_THROWS(merge_lora(model), UsageError, "full_parameters()");
        const auto whole = accelerator.full_parameters(prepared);
        merge_lora(model);
        EXPECT_EQ(lora_of(model), nullptr);
        EXPECT_TRUE(at::equal(model->forward(torch::arange(8).view({1, 8})), alone));
        const TemporaryFolder folder;
        save_pretrained(model, folder.path());
        EXPECT_TRUE(fs::exists(folder / "model.safetensors"));
      },
      sharding(true));
}

TEST(AdapterCheckpoint, HasTheBuffersOfFrozenLayers) {
  const TemporaryFolder folder;
  at::Tensor mean;
  for (const bool loads : {false, true}) {
    Accelerator accelerator(World::single(), {.device = "cpu"});
    TiedNet net;
    add_lora(net, {.r = 2, .target_modules = {"body"}});
    auto model = accelerator.prepare(net);
    if (loads) {
      accelerator.load_state(folder / "state");
      EXPECT_TRUE(at::equal(net->norm->running_mean, mean));
    } else {
      model(torch::arange(6));
      mean = net->norm->running_mean.clone();
      accelerator.save_state(folder / "state");
    }
  }
  const auto saved = load_file(folder / "state" / kAdapterFileName).tensors;
  EXPECT_TRUE(saved.contains("base_model.model.norm.running_mean"));
  EXPECT_TRUE(saved.contains("base_model.model.body.lora_A.weight"));
  EXPECT_FALSE(saved.contains("base_model.model.embedding.weight"));
}

TEST(TrainedOnly, LeavesFrozenWeightsOutWhereItIsAskedFor) {
  const TemporaryFolder folder;
  Accelerator accelerator(World::single(), {.device = "cpu"});
  torch::nn::Linear frozen(3, 3), teacher(2, 2);
  frozen->bias.set_requires_grad(false);
  for (auto& parameter : teacher->parameters()) parameter.set_requires_grad(false);
  auto prepared = accelerator.prepare(frozen);
  auto fixed = accelerator.prepare(teacher);
  accelerator.save_state(folder / "whole");
  EXPECT_EQ(load_file(folder / "whole/model.safetensors").tensors.size(), 2U);
  EXPECT_TRUE(verify_checkpoint(folder / "whole").info.frozen.empty());
  accelerator.save_state(folder / "part", {}, {.trained_only = true});
  EXPECT_EQ(load_file(folder / "part/model.safetensors").tensors.size(), 1U);
  EXPECT_EQ(load_file(folder / "part/model_1.safetensors").tensors.size(), 0U);
  const at::NoGradGuard no_grad;
  const at::Tensor weight = frozen->weight.clone();
  frozen->weight.zero_();
  accelerator.load_state(folder / "part");
  EXPECT_TRUE(at::equal(frozen->weight, weight));
  teacher->weight.add_(1);
  EXPECT_THROWS(accelerator.load_state(folder / "part"), DataError, "other frozen weights");
}

/// Checkpoints have one file of a model, however large: ranks gather its tensors in the order of that file.
TEST(ShardedState, AModelOfMoreThanAFileOfTheHubIsGatheredInTheOrderOfItsFile) {
  std::vector<NamedTensor> forms;
  TensorMap by_name;
  for (const char* name : {"second", "first"}) {
    forms.push_back(
        {name, at::empty({std::int64_t{8} << 30}, at::TensorOptions(at::kFloat).device(at::kMeta))});
    by_name.emplace(name, forms.back().tensor);
  }
  EXPECT_EQ(model_file_order(forms, train::kOneFile), names_in_file_order(by_name));
}

// ---- Trainer

class TokenRows final : public Dataset {
 public:
  std::int64_t size() const override { return 16; }
  Example get(std::int64_t index, const SampleContext&) const override {
    return {{"input_ids", torch::arange(8).mul(index + 3).remainder(37)}};
  }
};

TrainingArguments trainer_arguments(const fs::path& out, int ranks) {
  TrainingArguments args;
  args.output_dir = out;
  args.per_device_train_batch_size = 4 / ranks;
  args.learning_rate = 1e-3;
  args.max_steps = 4;
  args.save_strategy = SaveStrategy::steps;
  args.save_steps = 2;
  args.disable_tqdm = true;
  args.device = "cpu";
  return args;
}

/// Trains a model, by default an adapter alone, and saves it at the end.
void run_trainer(
    const TrainingArguments& args, int ranks, const std::function<void(Trainer&)>& after = {},
    const std::function<DecoderForCausalLM()>& make = [] { return small_adapted(at::kFloat); }) {
  testing::run_accelerators(
      ranks,
      [&](Accelerator& accelerator) {
        const CausalLM model(std::static_pointer_cast<CausalLMImpl>(make().ptr()));
        Trainer trainer(accelerator, args,
                        {.model = trainer_model(model),
                         .train_dataset = std::make_shared<TokenRows>(),
                         .eval_dataset = std::make_shared<TokenRows>(),
                         .data_collator = causal_lm_collate()});
        trainer.train();
        trainer.save_model();
        if (after) after(trainer);
      },
      accelerator_options(args));
}

/// Tied heads that were lost, doubled or empty in the file (huggingface/accelerate 2155).
TEST(ModelOfATrainer, IsWholeWhenItIsShardedWithATiedHeadOrNot) {
  const TemporaryFolder folder;
  for (const bool is_tied : {true, false}) {
    const auto file_of = [&](const std::string& fsdp) {
      auto args = trainer_arguments(folder / (fsdp + (is_tied ? "tied" : "own")), 2);
      args.fsdp = fsdp;
      args.max_grad_norm = 0;
      run_trainer(args, 2, {}, [&] {
        auto config = testing::decoder_config("llama");
        config.tie_word_embeddings = is_tied;
        DecoderForCausalLM model(config);
        fill(*model);
        return model;
      });
      return fs::path(args.output_dir) / "model.safetensors";
    };
    const auto whole = file_of(""), sharded = file_of("full_shard");
    EXPECT_EQ(testing::read_bytes(sharded), testing::read_bytes(whole));
    const auto tensors = load_file(sharded).tensors;
    EXPECT_EQ(tensors.contains("lm_head.weight"), !is_tied);
    EXPECT_EQ(tensors.at("model.embed_tokens.weight").sizes(), (at::IntArrayRef{37, 12}));
  }
}

/// Adapters that were saved empty, or as one rank's part (huggingface/peft 1443, huggingface/accelerate
/// 4206).
TEST(AdapterOfATrainer, IsWholeWhenTheModelIsSharded) {
  const TemporaryFolder folder;
  run_trainer(trainer_arguments(folder / "one", 1), 1);
  run_trainer(trainer_arguments(folder / "ddp", 2), 2);
  auto args = trainer_arguments(folder / "fsdp", 2);
  args.fsdp = "full_shard";
  run_trainer(args, 2);
  const auto one = load_file(folder / "one" / kAdapterFileName).tensors;
  EXPECT_FALSE(fs::exists(folder / "one/model.safetensors"));
  EXPECT_EQ(testing::read_bytes(folder / "fsdp" / kAdapterFileName),
            testing::read_bytes(folder / "ddp" / kAdapterFileName));
  auto fresh = small_adapted(at::kFloat);
  for (const auto& [name, tensor] : adapter_state(fresh))
    EXPECT_FALSE(at::equal(one.at(name), tensor)) << name;
  for (const char* world : {"ddp", "fsdp"}) {
    const auto saved = load_file(folder / world / kAdapterFileName).tensors;
    ASSERT_EQ(saved.size(), one.size());
    for (const auto& [name, tensor] : one)
      EXPECT_TRUE(at::allclose(saved.at(name), tensor, 1e-3, 1e-4)) << world << ' ' << name;
    const auto last = folder / world / "checkpoint-4";
    EXPECT_EQ(testing::read_bytes(last / kAdapterFileName),
              testing::read_bytes(folder / world / kAdapterFileName));
    EXPECT_FALSE(fs::exists(last / "model.safetensors"));
  }
}

TEST(AdapterOfATrainer, IsResumedAndTheBestOneLoaded) {
  const TemporaryFolder folder;
  for (const bool is_sharded : {false, true}) {
    auto args = trainer_arguments(folder / (is_sharded ? "sharded" : "whole"), 2);
    if (is_sharded) args.fsdp = "full_shard";
    run_trainer(args, 2);
    const fs::path out = args.output_dir;
    const std::string wanted = testing::read_bytes(out / kAdapterFileName);
    fs::remove_all(out / "checkpoint-4");
    run_trainer(args, 2, [](Trainer& trainer) { EXPECT_EQ(trainer.state().global_step, 4); });
    EXPECT_EQ(testing::read_bytes(out / kAdapterFileName), wanted);
    for (const bool only_model : {false, true}) {
      auto best = args;
      best.output_dir = out / (only_model ? "weights" : "all");
      best.save_only_model = only_model;
      // The greatest loss is the first one.
      best.metric_for_best_model = "loss";
      best.greater_is_better = true;
      best.eval_strategy = IntervalStrategy::steps;
      best.eval_steps = 2;
      best.load_best_model_at_end = true;
      std::string chosen;
      run_trainer(best, 2, [&](Trainer& trainer) {
        if (trainer.accelerator().is_main_process()) chosen = trainer.state().best_model_checkpoint.value();
      });
      EXPECT_EQ(testing::read_bytes(fs::path(best.output_dir) / kAdapterFileName),
                testing::read_bytes(fs::path(chosen) / kAdapterFileName));
      EXPECT_TRUE(chosen.ends_with("checkpoint-2")) << chosen;
      EXPECT_EQ(fs::exists(fs::path(chosen) / "manifest.json"), !only_model);
      EXPECT_FALSE(fs::exists(fs::path(chosen) / "model.safetensors"));
    }
  }
}

}  // namespace
}  // namespace lockstep::models
