// The code in the pages about training. tests/lint/snippets.py compares its lines with the pages.

#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/serialize.h>

#include <iostream>

#include "folder_of_a_page.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/models/auto_model.hpp"
#include "lockstep/models/gpt2.hpp"
#include "lockstep/models/script_model.hpp"
#include "support/accelerators.hpp"

namespace {

namespace F = torch::nn::functional;
namespace metrics = lockstep::metrics;
using lockstep::testing::FolderOfAPage;
using lockstep::testing::run_accelerators;
using lockstep::testing::run_group;

lockstep::models::Gpt2LMHeadModel tiny_gpt2() {
  return lockstep::models::Gpt2LMHeadModel(lockstep::models::Gpt2Config{
      .vocab_size = 11, .n_positions = 16, .n_embd = 8, .n_layer = 2, .n_head = 2});
}

std::shared_ptr<lockstep::Dataset> points() {
  const at::Tensor x = at::linspace(-1, 1, 24).reshape({8, 3});
  return std::make_shared<lockstep::TensorDataset>(lockstep::Batch{{"x", x}, {"y", x.sum(1, true)}});
}

lockstep::DataLoader tokens() {
  const lockstep::Batch rows{{"input_ids", at::arange(16).reshape({4, 4}).remainder(11)}};
  return lockstep::DataLoader(std::make_shared<lockstep::TensorDataset>(rows), {.batch_size = 2});
}

// ---- docs/activation_checkpointing.md

TEST(ActivationCheckpointingPage, OfLayersAndFunctions) {
  auto model = tiny_gpt2();
  torch::nn::Linear part(3, 3);
  const at::Tensor input = at::ones({2, 3});
  lockstep::set_activation_checkpointing(model);  // all layers of a model
  at::Tensor y = lockstep::checkpoint([&](const at::Tensor& x) { return part->forward(x); }, input);
  EXPECT_TRUE(at::equal(y, part(input)));
}

class BlockImpl : public torch::nn::Module, public lockstep::Unit {
 public:
  at::Tensor forward(const at::Tensor& states, const at::Tensor& mask) {
    return lockstep::through(*this, &BlockImpl::body, states, mask);
  }

 private:
  at::Tensor body(const at::Tensor& states, const at::Tensor& mask);  // what forward was before
};

at::Tensor BlockImpl::body(const at::Tensor& states, const at::Tensor& mask) { return states * mask; }

TEST(ActivationCheckpointingPage, OfAUnit) {
  BlockImpl block;
  EXPECT_TRUE(at::equal(block.forward(at::ones({2}), at::zeros({2})), at::zeros({2})));
}

// ---- docs/checkpoints.md

int train_with_checkpoints(lockstep::Accelerator& accelerator,
                           const std::function<void(lockstep::Batch&)>& step, std::int64_t epochs) {
  torch::nn::Linear model(3, 1);
  lockstep::optim::AdamW optimizer(model->parameters(), {.lr = 1e-3});
  lockstep::DataLoader loader(points(), {.batch_size = 4});
  auto [ddp, opt, batches] = accelerator.prepare(model, optimizer, loader);
  lockstep::Checkpoints checkpoints(accelerator, {.folder = "run/checkpoints", .every = 100, .keep_last = 2});
  checkpoints.resume();  // from the newest complete one, if any
  while (batches.epoch() < epochs) {
    for (auto& batch : batches) {
      step(batch);
      if (checkpoints.after_step()) return lockstep::kPreemptedExitCode;
    }
  }
  return 0;
}

TEST(CheckpointsPage, ATrainingThatIsStoppedAndResumes) {
  const FolderOfAPage folder;
  int steps = 0;
  run_accelerators(1, [&](lockstep::Accelerator& accelerator) {
    const auto stop = [&](lockstep::Batch&) {
      if (++steps == 3) accelerator.request_stop();
    };
    EXPECT_EQ(train_with_checkpoints(accelerator, stop, 2), lockstep::kPreemptedExitCode);
  });
  run_accelerators(1, [&](lockstep::Accelerator& accelerator) {
    EXPECT_EQ(train_with_checkpoints(
                  accelerator, [&](lockstep::Batch&) { ++steps; }, 2),
              0);
  });
  EXPECT_EQ(steps, 4);
}

// ---- docs/diagnostics.md

TEST(DiagnosticsPage, ARangeInTheTrace) {
  const lockstep::trace::Range range("validation");  // lockstep/comm/trace.hpp; an NVTX range too with CUDA
}

// ---- docs/communication.md

TEST(CommunicationPage, ACollectiveWithGradients) {
  run_group(2, [](const lockstep::ProcessGroup& group) {
    torch::nn::Linear net(3, 4);
    lockstep::DistributedDataParallel encoder(net, group);
    const at::Tensor images = at::ones({2, 3}).mul(group.rank()), texts = at::ones({2, 3});
    const at::Tensor labels = at::arange(2).add(2 * group.rank());
    // [ranks * rows, width]
    const at::Tensor keys = lockstep::all_gather_with_gradients(group, encoder(images));
    const at::Tensor scores = encoder(texts).matmul(keys.t());
    // Collective too: adds up all ranks' gradients for these rows
    F::cross_entropy(scores, labels).backward();
    EXPECT_TRUE(net->weight.grad().defined());
  });
}

// ---- docs/fsdp.md

TEST(FsdpPage, AShardedModel) {
  const FolderOfAPage folder;
  run_group(2, [](const lockstep::ProcessGroup& group) {
    auto gpt2 = tiny_gpt2();
    auto loader = tokens();
    auto model = lockstep::fully_shard(gpt2, group);
    lockstep::optim::AdamW optimizer(gpt2->parameters(), {.lr = 1e-3});  // before or after sharding
    for (auto& batch : loader) {
      lockstep::models::causal_lm_loss(model(batch["input_ids"]), batch["input_ids"]).backward();
      model.clip_grad_norm_(1.0);  // by the norm over all ranks
      optimizer.step();            // only this rank's shard
      model.zero_grad();
    }
    const auto whole = model.full_parameters();
    if (group.rank() == 0) lockstep::models::save_pretrained(gpt2, "out");
  });
  EXPECT_TRUE(std::filesystem::exists("out/model.safetensors"));
}

TEST(FsdpPage, ValuesThatAreLoaded) {
  const FolderOfAPage folder;
  torch::nn::Linear other(3, 2);
  torch::save(other, "net.pt");
  run_group(2, [&](const lockstep::ProcessGroup& group) {
    torch::nn::Linear net(3, 2);
    auto model = lockstep::fully_shard(net, group);
    {
      const auto whole = model.full_parameters();
      torch::load(net, "net.pt");
    }
    const auto whole = model.full_parameters();
    EXPECT_TRUE(at::equal(net->weight, other->weight));
  });
}

TEST(FsdpPage, AnAccelerator) {
  auto gpt2 = tiny_gpt2();
  auto data = tokens();
  lockstep::optim::AdamW adamw(gpt2->parameters(), {.lr = 1e-3});
  lockstep::Accelerator accelerator({.fsdp_plugin = lockstep::FullyShardedDataParallelPlugin{}});
  auto [model, optimizer, loader] = accelerator.prepare(gpt2, adamw, data);
  EXPECT_TRUE(model.is_fully_sharded());
}

TEST(FsdpPage, AModelThatIsShardedWhileItIsMade) {
  const FolderOfAPage page;
  const std::filesystem::path folder = "gpt2";
  auto saved = tiny_gpt2();
  lockstep::models::save_pretrained(saved, folder);
  const auto prepare = [&](lockstep::Accelerator& accelerator) {
    auto init = accelerator.sharded_init();           // or lockstep::ShardedInit init(group);
    auto gpt2 = lockstep::models::load_gpt2(folder);  // or a new one
    init.reset();
    auto model = accelerator.prepare(gpt2);
    EXPECT_TRUE(model.is_fully_sharded());
  };
  run_accelerators(2, prepare, {.fsdp_plugin = lockstep::FullyShardedDataParallelPlugin{}});
}

// ---- docs/models.md

TEST(ModelsPage, AFolderOfAnyFamily) {
  namespace models = lockstep::models;
  const FolderOfAPage page;
  const std::filesystem::path folder = "gpt2";
  models::save_pretrained(tiny_gpt2(), folder);
  const at::Device device(at::kCPU);
  const at::Tensor ids = at::ones({1, 3}, at::kLong), mask = at::ones({1, 3}, at::kLong);
  auto gpt2 = models::AutoModelForCausalLM::from_pretrained(folder);
  gpt2->to(device);
  const auto texts = models::generate(gpt2, ids, mask, {.max_new_tokens = 12});
  models::save_pretrained(gpt2, "out");
  EXPECT_GT(texts.size(1), 3);
  EXPECT_TRUE(std::filesystem::exists("out/config.json"));
}

TEST(ModelsPage, AProgramFromPython) {
  const FolderOfAPage folder;
  torch::jit::Module script("Net");
  script.register_parameter("scale", at::ones({2}).requires_grad_(), /*is_buffer=*/false);
  script.define("def forward(self, x):\n  return x * self.scale\n");
  script.save("net.pt");
  run_accelerators(1, [](lockstep::Accelerator& accelerator) {
    lockstep::models::ScriptModel model("net.pt");  // not TorchScript: an error that says what it is
    lockstep::optim::AdamW optimizer(model.parameters(), {.lr = 1e-3});
    auto [ddp, opt] = accelerator.prepare(model, optimizer);
    EXPECT_TRUE(at::equal(ddp(at::ones({2})), at::ones({2})));
  });
}

// ---- docs/parallel.md

struct LossNetImpl : torch::nn::Cloneable<LossNetImpl> {
  LossNetImpl() { reset(); }
  void reset() override { linear = register_module("linear", torch::nn::Linear(3, 1)); }
  at::Tensor forward(const at::Tensor& ids, const at::Tensor& mask, const at::Tensor& labels) {
    return F::mse_loss(linear(ids * mask), labels);
  }
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(LossNet);

struct HeadedNetImpl : torch::nn::Module {
  HeadedNetImpl() {
    body = register_module("body", torch::nn::Linear(3, 4));
    head = register_module("head", torch::nn::Linear(4, 1));
  }
  at::Tensor forward(const at::Tensor& x) { return head(body(x).tanh()); }
  torch::nn::Linear body{nullptr}, head{nullptr};
};
TORCH_MODULE(HeadedNet);

TEST(ParallelPage, AWrappedModule) {
  const FolderOfAPage folder;
  HeadedNet other;
  torch::save(other, "net.pt");
  run_group(2, [&](const lockstep::ProcessGroup& group) {
    HeadedNet net;
    for (auto& parameter : net->body->parameters()) parameter.requires_grad_(false);
    lockstep::DistributedDataParallel ddp(net, group);
    lockstep::optim::AdamW optimizer(net->head->parameters(), {.lr = 1e-3});
    const int micro_batches = 2;
    const at::Tensor x = at::ones({2, 3}).add(group.rank());
    for (auto& parameter : net->body->parameters()) parameter.requires_grad_(true);
    ddp = lockstep::DistributedDataParallel(net, group);  // replaces the wrapper that had only the head
    optimizer.add_param_group({net->body->parameters()});
    for (int micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
      std::optional<lockstep::DistributedDataParallelBase::NoSync> no_sync;
      if (micro_batch + 1 < micro_batches) no_sync.emplace(ddp);  // until the end of the scope
      ddp(x).square().mean().backward();
    }
    optimizer.step();
    torch::load(net, "net.pt");  // or ddp.module()
    EXPECT_TRUE(at::equal(net->body->weight, other->body->weight));
    ddp.zero_grad();
    ddp(x).square().mean().backward();
    const auto gradients = group.all_gather(net->body->weight.grad());
    EXPECT_TRUE(at::equal(gradients[0], gradients[1]));
  });
}

TEST(ParallelPage, SeveralDevices) {
  LossNet net;
  const std::vector<at::Device> devices{at::kCPU, at::kCPU};
  const at::Tensor ids = at::ones({4, 3}), mask = at::ones({4, 3}), labels = at::ones({4, 1});
  lockstep::DataParallel model(net, {.devices = devices});  // default: all CUDA devices
  auto losses = model(ids, mask, labels);  // a loss computed inside forward: one element for each replica
  losses.mean().backward();                // gradients are in net's parameters
  EXPECT_EQ(losses.numel(), 2);
  EXPECT_TRUE(net->linear->weight.grad().defined());
}

TEST(ParallelPage, GroupsOfRanks) {
  run_group(8, [](const lockstep::ProcessGroup& world) {
    torch::nn::Linear model(3, 1);
    const lockstep::ParallelContext context(world, {.data_parallel_size = 8, .shard_size = 4});
    lockstep::DistributedDataParallel ddp(model, context);                  // averages over the data group
    const int rank = context.get_local_rank(lockstep::ParallelMode::data);  // for DistributedSampler
    EXPECT_EQ(rank, world.rank());
  });
}

TEST(ParallelPage, ShardedOptimizerState) {
  run_accelerators(2, [](lockstep::Accelerator& accelerator) {
    torch::nn::Linear model(3, 1);
    lockstep::DataLoader loader(points(), {.batch_size = 4});
    lockstep::optim::ZeroRedundancyOptimizer optimizer(
        lockstep::optim::AdamW(model->parameters(), {.lr = 1e-3}), accelerator.process_group());
    auto [ddp, opt, batches] = accelerator.prepare(model, optimizer, loader);
    for (auto& batch : batches) accelerator.backward(ddp(batch["x"]).sum());
    opt.step();
  });
}

// ---- docs/performance.md

TEST(PerformancePage, Statistics) {
  run_accelerators(1, [](lockstep::Accelerator& accelerator) {
    torch::nn::Linear model(3, 1);
    auto ddp = accelerator.prepare(model);
    ddp(at::ones({2, 3})).sum().backward();
    ::testing::internal::CaptureStderr();
    std::cerr << ddp.statistics().to_text();
    EXPECT_FALSE(::testing::internal::GetCapturedStderr().empty());
    ddp.register_comm_hook(std::make_shared<lockstep::CompressHook>(at::kBFloat16));
    ddp(at::ones({2, 3})).sum().backward();
  });
}

TEST(PerformancePage, OptionsOfGroups) {
  torch::nn::Linear model(3, 1);
  const std::vector<at::Tensor> decayed{model->weight}, others{model->bias};
  lockstep::optim::AdamW optimizer(model->parameters(), {.lr = 3e-4});
  lockstep::optim::AdamW grouped({{decayed, {.lr = 3e-4}}, {others, {.lr = 3e-4, .weight_decay = 0}}});
  EXPECT_EQ(grouped.param_groups().size(), 2U);
}

TEST(PerformancePage, AGraphedStep) {
  torch::nn::Linear net(3, 1);
  lockstep::DataLoader loader(points(), {.batch_size = 4, .drop_last = true});
  lockstep::Accelerator accelerator;
  const auto stream = lockstep::graph_stream(accelerator.device());
  lockstep::optim::AdamW adam(net->parameters(), {.lr = 1e-3});
  lockstep::optim::LrScheduler linear(adam, {.name = "linear", .num_training_steps = 2});
  auto [model, optimizer, scheduler, batches] = accelerator.prepare(net, adam, linear, loader);
  lockstep::GraphedStep step(
      [&, &model = model, &optimizer = optimizer](const std::vector<at::Tensor>& inputs) {
        const at::Tensor loss = F::mse_loss(model(inputs[0]), inputs[1]);
        optimizer.zero_grad();
        accelerator.backward(loss);
        optimizer.step();
        return std::vector{loss};
      });
  for (auto& batch : batches) {
    const at::Tensor loss = step({batch["x"], batch["y"]})[0];
    scheduler.step();
    EXPECT_TRUE(loss.isfinite().item<bool>());
  }
}

TEST(PerformancePage, AProfiler) {
  const FolderOfAPage folder;
  run_accelerators(1, [](lockstep::Accelerator& accelerator) {
    lockstep::DataLoader batches(points(), {.batch_size = 4});
    const auto step = [](lockstep::Batch& batch) { return batch["x"].sum(); };
    auto profiler = accelerator.profile({.schedule_option = {.skip_first = 10, .warmup = 1, .active = 3}});
    for (auto& batch : batches) {
      step(batch);
      profiler.step();
    }
  });
}

// ---- docs/trainer.md

int train_with_trainer(torch::nn::Linear& net, const std::shared_ptr<lockstep::Dataset>& train,
                       const std::shared_ptr<lockstep::Dataset>& validation) {
  const auto forward = [](auto& model, const lockstep::Batch& batch) {
    return lockstep::Batch{{"loss", F::mse_loss(model(batch["x"]), batch["y"])}};
  };
  lockstep::Trainer trainer(
      {.output_dir = "out", .num_train_epochs = 3, .learning_rate = 1e-3},
      {.model = lockstep::wrap_model(net, forward), .train_dataset = train, .eval_dataset = validation});
  const auto output = trainer.train();
  trainer.save_model();
  return output.preempted ? lockstep::kPreemptedExitCode : 0;
}

TEST(TrainerPage, ATraining) {
  const FolderOfAPage folder;
  torch::nn::Linear net(3, 1);
  EXPECT_EQ(train_with_trainer(net, points(), points()), 0);
  EXPECT_TRUE(std::filesystem::exists("out/model.safetensors"));
}

TEST(TrainerPage, AModelThatIsWrapped) {
  torch::nn::Linear net(3, 2);
  auto wrapped = lockstep::wrap_model(net, [](auto& model, const lockstep::Batch& batch) {
    const at::Tensor logits = model(batch["image"]);
    return lockstep::Batch{{"loss", F::cross_entropy(logits, batch["label"])}, {"logits", logits}};
  });
  const lockstep::Batch outputs =
      wrapped->evaluate({{"image", at::ones({2, 3})}, {"label", at::zeros({2}, at::kLong)}});
  EXPECT_TRUE(outputs.contains("loss"));
}

TEST(TrainerPage, ALossAndAMetric) {
  const auto compute_loss = [](const lockstep::Batch& outputs,
                               const lockstep::Batch& batch) -> lockstep::Loss {
    const at::Tensor labels = batch["labels"].flatten();
    const auto sum = F::CrossEntropyFuncOptions().reduction(torch::kSum);
    return {F::cross_entropy(outputs["logits"].flatten(0, 1), labels, sum), (labels != -100).sum()};
  };
  const lockstep::Loss loss =
      compute_loss({{"logits", at::ones({2, 2, 3})}},
                   {{"labels", at::tensor({0, -100, 1, 2}, at::kLong).reshape({2, 2})}});
  EXPECT_EQ(loss.weight->item(), 3);
  const auto median = [](const lockstep::EvaluationPrediction& all) -> lockstep::Metrics {
    return {{"median", (all.predictions["prediction"] - all.inputs["y"]).abs().median().item<double>()}};
  };
  const lockstep::Batch predictions{{"prediction", at::ones({3})}}, inputs{{"y", at::zeros({3})}};
  EXPECT_EQ(median({predictions, inputs}).front().second, 1);
}

TEST(TrainerPage, ArgumentsOfAProgram) {
  struct Options : lockstep::TrainingArguments {
    std::string data;
  };
  lockstep::OptionTable<Options> table("my_trainer", "Trains my model.");
  table.include(lockstep::training_argument_table())
      .section("data")
      .add("data", &Options::data, "Folder of the data.", lockstep::required());
  EXPECT_EQ(table.from_json_text(R"({"data": "a", "seed": 7})").seed, 7U);
}

// ---- docs/trainers.md

TEST(TrainersPage, AMetric) {
  run_accelerators(1, [](lockstep::Accelerator& accelerator) {
    torch::nn::Linear model(3, 77);
    const lockstep::Batch rows{{"input_ids", at::ones({4, 3})}, {"labels", at::arange(4)}};
    lockstep::DataLoader batches(std::make_shared<lockstep::TensorDataset>(rows), {.batch_size = 2});
    metrics::Classification scores(77);
    for (auto& batch : batches) scores.update(model(batch["input_ids"]), batch["labels"]);
    const auto all = scores.of_all_ranks(accelerator.process_group());
    accelerator.print(all.accuracy(), " ", all.f1({.average = metrics::Average::macro}));
  });
}

// ---- docs/training.md

TEST(TrainingPage, ALoop) {
  torch::nn::Linear model(3, 1);
  lockstep::DataLoader loader(points(), {.batch_size = 4});
  const auto loss_sum = [](const at::Tensor& x, const at::Tensor& y) { return (x - y).square().sum(); };
  const auto tokens_in = [](const lockstep::Batch& batch) { return static_cast<double>(batch.size()); };
  lockstep::Accelerator accelerator({.mixed_precision = lockstep::MixedPrecision::bf16,
                                     .gradient_accumulation = {.global_batch_size = 512}});
  lockstep::optim::AdamW optimizer(
      lockstep::optim::parameter_groups(model, lockstep::optim::AdamWOptions{.lr = 5e-5}));
  lockstep::optim::LrScheduler cosine(
      optimizer, {.name = "cosine", .num_warmup_steps = 100, .num_training_steps = 5000});
  auto [ddp, opt, scheduler, batches] = accelerator.prepare(model, optimizer, cosine, loader);
  for (auto& batch : batches) {
    const auto step = accelerator.accumulate();
    accelerator.backward(loss_sum(ddp(batch["x"]), batch["y"]), tokens_in(batch));
    accelerator.clip_grad_norm_(ddp, 1.0);
    opt.step();
    scheduler.step();
    opt.zero_grad();
  }
  EXPECT_EQ(accelerator.gradient_accumulation_steps(), 128);
}

}  // namespace
