// Fully sharded models in Accelerator and Trainer, beside DistributedDataParallel.

#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim/lbfgs.h>

#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>

#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/dataset.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/zero_redundancy_optimizer.hpp"
#include "lockstep/parallel/unit.hpp"
#include "lockstep/train/accelerator.hpp"
#include "lockstep/train/callbacks.hpp"
#include "lockstep/train/trainer.hpp"
#include "support/accelerators.hpp"
#include "support/peak_bytes.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
namespace F = torch::nn::functional;
using testing::contains_all;
using testing::message_of;
using testing::PeakBytes;
using testing::run_accelerators;
using testing::TemporaryFolder;
using Losses = std::vector<double>;

class BlockImpl : public torch::nn::Module, public Unit {
 public:
  BlockImpl()
      : in(register_module("in", torch::nn::Linear(5, 7))),
        out(register_module("out", torch::nn::Linear(7, 5))) {}
  at::Tensor forward(const at::Tensor& states) { return through(*this, &BlockImpl::body, states); }

 private:
  at::Tensor body(const at::Tensor& states) { return states + out(torch::tanh(in(states))); }
  torch::nn::Linear in, out;
};
TORCH_MODULE(Block);

/// Two units, a buffer, a frozen parameter, and a layer that has two names.
class NetImpl : public torch::nn::Module {
 public:
  NetImpl() {
    first = register_module("first", torch::nn::Linear(3, 5));
    blocks->push_back(Block());
    blocks->push_back(Block());
    register_module("blocks", blocks);
    shared = register_module("shared", torch::nn::Linear(5, 5));
    again = register_module("again", shared);
    last = register_module("last", torch::nn::Linear(5, 1));
    scale = register_buffer("scale", torch::full({5}, 0.5));
    first->bias.set_requires_grad(false);
  }
  at::Tensor forward(const at::Tensor& input) {
    at::Tensor states = first(input);
    for (std::size_t i = 0; i < 2; ++i) states = blocks->at<BlockImpl>(i).forward(states);
    return last(again(torch::tanh(shared(states * scale.to(states.scalar_type())))));
  }
  torch::nn::Linear first{nullptr}, shared{nullptr}, again{nullptr}, last{nullptr};
  torch::nn::ModuleList blocks;
  at::Tensor scale;
};
TORCH_MODULE(Net);

/// New modules are drawn from the process's generator, which the ranks' threads share.
Net seeded_net(std::uint64_t seed) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  torch::manual_seed(seed);
  return Net();
}

/// Each once.
std::vector<at::Tensor> parameters_of(const Net& net) {
  std::vector<at::Tensor> result;
  for (const auto& parameter : net->parameters()) {
    const bool is_new = std::none_of(result.begin(), result.end(),
                                     [&](const at::Tensor& other) { return other.is_same(parameter); });
    if (is_new) result.push_back(parameter);
  }
  return result;
}

std::shared_ptr<const Dataset> samples(std::int64_t count = 48) {
  const at::Tensor x = at::linspace(-1, 1, count * 3).reshape({count, 3});
  return std::make_shared<TensorDataset>(Batch{{"x", x}, {"y", x.sum(1, true).sin()}});
}

AcceleratorOptions sharded(bool on = true, std::int64_t accumulation = 1) {
  AcceleratorOptions options{.gradient_accumulation_steps = accumulation};
  if (on) options.fsdp_plugin.emplace();
  return options;
}

class Job {
 public:
  explicit Job(Accelerator& accelerator, std::uint64_t seed = 1)
      : net(seeded_net(seed)),
        optimizer(parameters_of(net), {.lr = 0.05}),
        accelerator_(accelerator),
        model(accelerator.prepare(net)),
        accelerated(accelerator.prepare(optimizer)),
        loader(accelerator.prepare(DataLoader(samples(), {.batch_size = 2, .shuffle = true, .seed = 9}))) {}

  Losses train(int steps) {
    Losses losses;
    while (steps > 0) {
      for (auto& batch : loader) {
        const auto micro = accelerator_.accumulate();
        const at::Tensor loss = torch::mse_loss(model(batch["x"]), batch["y"]);
        accelerator_.backward(loss);
        if (accelerator_.sync_gradients())
          norms.push_back(accelerator_.clip_grad_norm_(model, 0.3).item<double>());
        accelerated.step();
        accelerated.zero_grad();
        losses.push_back(loss.item<double>());
        if (--steps == 0) break;
      }
    }
    return losses;
  }

  Net net;
  optim::AdamW optimizer;

 private:
  Accelerator& accelerator_;

 public:
  AcceleratedModel<Net> model;
  AcceleratedOptimizer accelerated;
  DataLoader loader;
  Losses norms;
};

void expect_near(const Losses& one, const Losses& other) {
  ASSERT_EQ(one.size(), other.size());
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], other[i], 1e-5) << i;
}

void expect_same_tensors(const fs::path& one, const fs::path& other) {
  const auto here = load_file(one).tensors, there = load_file(other).tensors;
  ASSERT_EQ(here.size(), there.size());
  ASSERT_GT(here.size(), 10U);
  for (const auto& [name, tensor] : here) EXPECT_TRUE(torch::equal(tensor, there.at(name))) << name;
}

/// Clipping computes the norm in another order, so not to the last bit.
TEST(FsdpPlugin, TrainsAsDistributedDataParallel) {
  for (const int size : {1, 3}) {
    for (const std::int64_t accumulation : {1, 2}) {
      const auto train = [&](bool on) {
        Losses losses, norms;
        run_accelerators(
            size,
            [&](Accelerator& accelerator) {
              Job job(accelerator);
              EXPECT_EQ(job.model.is_fully_sharded(), on);
              const Losses own = job.train(8);
              if (accelerator.is_main_process()) losses = own, norms = job.norms;
            },
            sharded(on, accumulation));
        losses.insert(losses.end(), norms.begin(), norms.end());
        return losses;
      };
      const Losses whole = train(false);
      EXPECT_EQ(whole.size(), 8U + 8U / static_cast<std::size_t>(accumulation));
      EXPECT_GT(whole[8], 0.3);  // Clipping has something to do.
      expect_near(train(true), whole);
    }
  }
}

/// Two nodes of two ranks each.
TEST(FsdpPlugin, DividesAModelWithinEachNode) {
  const TemporaryFolder folder;
  const auto train = [&](bool hybrid) {
    Losses losses;
    testing::run_group(4, [&](const ProcessGroup& group) {
      World world;
      world.rank = group.rank();
      world.world_size = 4;
      world.local_rank = group.rank() % 2;
      world.local_world_size = 2;
      world.group_rank = group.rank() / 2;
      world.group_world_size = 2;
      AcceleratorOptions options = sharded(hybrid, 2);
      if (hybrid) options.fsdp_plugin->hybrid_shard = true;
      Accelerator accelerator(world, group, options);
      Job job(accelerator);
      if (hybrid) {
        std::int64_t numbers = 0;
        for (const auto& parameter : job.net->blocks->parameters()) numbers += parameter.numel();
        EXPECT_EQ(accelerator.reduce(at::full({}, numbers)).item<std::int64_t>(), 2 * 2 * 82);
      }
      const Losses own = job.train(8);
      accelerator.save_state(folder / (hybrid ? "hybrid" : "whole"));
      if (accelerator.is_main_process()) losses = own, losses.push_back(job.norms.back());
    });
    return losses;
  };
  expect_near(train(true), train(false));
  const auto one = load_file(folder / "hybrid" / "optimizer.safetensors").tensors;
  const auto other = load_file(folder / "whole" / "optimizer.safetensors").tensors;
  ASSERT_EQ(one.size(), other.size());
  for (const auto& [name, tensor] : one)
    EXPECT_TRUE(torch::allclose(tensor, other.at(name), 1e-3, 1e-6)) << name;
}

TEST(FsdpPlugin, GoesOnWithTheSameBits) {
  const TemporaryFolder folder;
  Losses through, again;
  run_accelerators(
      2,
      [&](Accelerator& accelerator) {
        Job job(accelerator);
        job.train(5);
        accelerator.save_state(folder / "kept", {.step = 5});
        const Losses rest = job.train(6);
        if (accelerator.is_main_process()) through = rest;
      },
      sharded());
  run_accelerators(
      2,
      [&](Accelerator& accelerator) {
        Job job(accelerator, 77);
        accelerator.load_state(folder / "kept");
        const Losses rest = job.train(6);
        if (accelerator.is_main_process()) again = rest;
      },
      sharded());
  ASSERT_EQ(through.size(), 6U);
  EXPECT_EQ(through, again);
}

/// Written by one world, read by another and written again: the files hold the same.
TEST(FsdpPlugin, CheckpointsFitAnyNumberOfRanksAndDistributedDataParallel) {
  struct World {
    int size;
    bool sharded;
  };
  const TemporaryFolder folder;
  for (const World from : {World{4, true}, World{2, false}}) {
    const fs::path first = folder / (from.sharded ? "sharded" : "whole");
    run_accelerators(
        from.size,
        [&](Accelerator& accelerator) {
          Job job(accelerator);
          job.train(3);
          accelerator.save_state(first);
        },
        sharded(from.sharded));
    for (const World to : {World{1, true}, World{2, true}, World{3, true}, World{2, false}}) {
      const fs::path second = first.string() + std::to_string(to.size) + (to.sharded ? "s" : "w");
      run_accelerators(
          to.size,
          [&](Accelerator& accelerator) {
            Job job(accelerator, 77);
            accelerator.load_state(first);
            accelerator.save_state(second);
            job.train(1);
          },
          sharded(to.sharded));
      for (const char* file : {"model.safetensors", "optimizer.safetensors"})
        expect_same_tensors(first / file, second / file);
    }
  }
}

TEST(FsdpPlugin, SavesAndLoadsWholeModels) {
  const TemporaryFolder folder;
  run_accelerators(
      3,
      [&](Accelerator& accelerator) {
        Job job(accelerator);
        job.train(2);
        accelerator.save_model(job.model, folder.path());
        const TensorMap state = accelerator.get_state_dict(job.model);
        EXPECT_EQ(state.empty(), !accelerator.is_main_process());
        if (accelerator.is_main_process()) {
          EXPECT_EQ(state.at("blocks.1.in.weight").sizes(), at::IntArrayRef({7, 5}));
          Net net = seeded_net(5);
          read_model(folder.path(), parallel::named_state_of(net));
          EXPECT_TRUE(torch::equal(net->shared->weight, state.at("again.weight")));
        }
        Job other(accelerator, 6);
        accelerator.load_model(other.net, folder.path());
        for (const auto& [name, tensor] : accelerator.get_state_dict(other.net))
          EXPECT_TRUE(torch::equal(tensor, state.at(name))) << name;
      },
      sharded());
}

/// Twelve matrices of 16 KiB, and two more of each for the optimizer.
TEST(FsdpPlugin, FilesAreWrittenAndReadTensorByTensor) {
  constexpr std::int64_t kMatrix = 64 * 64 * 4, kModel = 12 * kMatrix;
  const TemporaryFolder folder;
  run_accelerators(
      2,
      [&](Accelerator& accelerator) {
        torch::nn::Sequential net;
        for (int i = 0; i < 12; ++i)
          net->push_back(torch::nn::Linear(torch::nn::LinearOptions(64, 64).bias(false)));
        optim::AdamW adam(net->parameters(), {.lr = 0.1});
        auto model = accelerator.prepare(net);
        auto optimizer = accelerator.prepare(adam);
        accelerator.backward(model(at::ones({2, 64})).square().mean());
        optimizer.step();
        optimizer.zero_grad();
        EXPECT_LT(PeakBytes::of([&] { accelerator.save_state(folder / "state"); }), 4 * kMatrix);
        EXPECT_LT(PeakBytes::of([&] { accelerator.save_model(model, folder.path(), 3 * kMatrix); }),
                  4 * kMatrix);
        EXPECT_LT(PeakBytes::of([&] { accelerator.load_model(model, folder.path()); }), 4 * kMatrix);
        // This rank's half of the optimizer's state, twice.
        EXPECT_LT(PeakBytes::of([&] { accelerator.load_state(folder / "state"); }), 2 * kModel + 4 * kMatrix);
        EXPECT_GE(PeakBytes::of([&] { accelerator.get_state_dict(model); }),
                  accelerator.is_main_process() ? kModel : 0);
        accelerator.wait_for_everyone();
        std::vector<NamedTensor> in_parts, state;
        for (const auto& [name, tensor] : load_file(folder / "state" / "model.safetensors").tensors) {
          state.push_back({name, tensor});
          in_parts.push_back({name, at::zeros_like(tensor)});
        }
        ASSERT_EQ(state.size(), 12U);
        EXPECT_TRUE(fs::exists(folder / "model-00004-of-00004.safetensors"));
        read_model(folder.path(), in_parts);
        for (std::size_t i = 0; i < state.size(); ++i)
          EXPECT_TRUE(torch::equal(state[i].tensor, in_parts[i].tensor)) << state[i].name;
      },
      sharded());
}

/// The other ranks do not wait for what rank 0 cannot write.
TEST(FsdpPlugin, AFileThatCannotBeWrittenFailsOnEveryRank) {
  const TemporaryFolder folder;
  write_atomically(folder / "file", "");
  run_accelerators(
      3,
      [&](Accelerator& accelerator) {
        Job job(accelerator);
        job.train(1);
        for (const auto& action : std::vector<std::function<void()>>{
                 [&] { accelerator.save_model(job.model, folder / "file" / "model"); },
                 [&] { accelerator.save_state(folder / "file" / "state"); }}) {
          EXPECT_TRUE(contains_all(message_of<Error>(action), {(folder / "file").string()}));
        }
        job.train(1);
      },
      sharded());
}

TEST(FsdpPlugin, APolicyOfBfloat16ComputesAndReducesInIt) {
  const TemporaryFolder folder;
  AcceleratorOptions options = sharded();
  options.fsdp_plugin->mixed_precision_policy = MixedPrecision::bf16;
  run_accelerators(
      2,
      [&](Accelerator& accelerator) {
        Job job(accelerator);
        EXPECT_EQ(job.model(at::ones({1, 3})).scalar_type(), at::kFloat);
        job.train(6);
        accelerator.save_state(folder / "kept");
      },
      options);
  for (const auto& [name, tensor] : load_file(folder / "kept" / "model.safetensors").tensors)
    EXPECT_EQ(tensor.scalar_type(), at::kFloat) << name;
  Losses halves, wholes;
  for (auto* const losses : {&halves, &wholes}) {
    if (losses == &wholes) options = sharded();
    run_accelerators(
        2,
        [&](Accelerator& accelerator) {
          Job job(accelerator, 77);
          accelerator.load_state(folder / "kept");
          const Losses own = job.train(4);
          if (accelerator.is_main_process()) *losses = own;
        },
        options);
  }
  EXPECT_NE(halves, wholes);
  for (std::size_t i = 0; i < halves.size(); ++i) EXPECT_NEAR(halves[i], wholes[i], 0.02) << i;
}

TEST(FsdpPlugin, AShardedModuleIsNotWrappedAgain) {
  testing::run_group(2, [](const ProcessGroup& group) {
    torch::nn::Linear layer(2, 2);
    { const auto wrapper = fully_shard(layer, group); }
    EXPECT_TRUE(contains_all(message_of<UsageError>([&] { fully_shard(layer, group); }),
                             {"parameter 'weight' is fully sharded already"}));
    EXPECT_TRUE(contains_all(message_of<UsageError>([&] { DistributedDataParallel(layer, group); }),
                             {"parameter 'weight' is fully sharded", "DistributedDataParallel"}));
  });
}

TEST(FsdpPlugin, RefusesWhatDoesNotGoWithIt) {
  const auto with = [](const std::function<void(AcceleratorOptions&)>& change) {
    return message_of<UsageError>([&] {
      AcceleratorOptions options = sharded();
      change(options);
      run_accelerators(
          1, [](Accelerator&) {}, options);
    });
  };
  EXPECT_TRUE(contains_all(with([](auto& o) { o.comm_hook = "bf16"; }), {"comm_hook 'bf16'", "fsdp_plugin"}));
  EXPECT_TRUE(contains_all(with([](auto& o) {
                             o.mixed_precision = MixedPrecision::bf16;
                             o.fsdp_plugin->mixed_precision_policy = MixedPrecision::bf16;
                           }),
                           {"mixed_precision_policy", "leave one of them out"}));
  EXPECT_TRUE(contains_all(with([](auto& o) { o.gradient_accumulation.weights_of_all_ranks = false; }),
                           {"weights_of_all_ranks", "fsdp_plugin"}));
  run_accelerators(
      2,
      [](Accelerator& accelerator) {
        Job job(accelerator);
        job.train(1);
        torch::mse_loss(job.model(at::ones({2, 3})), at::ones({2, 1})).backward();
        EXPECT_TRUE(contains_all(
            message_of<UsageError>([&] { accelerator.clip_grad_norm_({job.net->first->weight}, 1); }),
            {"all parameters", "Give it the model"}));
        EXPECT_TRUE(contains_all(
            message_of<UsageError>([&] { accelerator.clip_grad_norm_(job.model, 1, 1); }), {"type 2"}));
        EXPECT_TRUE(
            contains_all(message_of<UsageError>([&] { accelerator.join_uneven_inputs(job.model, [] {}); }),
                         {"fully sharded", "DistributedDataParallel"}));
        const Net other = seeded_net(2);
        torch::optim::LBFGS lbfgs(parameters_of(other), 0.1);
        EXPECT_TRUE(contains_all(message_of<UsageError>([&] { accelerator.prepare(lbfgs); }),
                                 {"LBFGS", "fsdp_plugin"}));
        optim::ZeroRedundancyOptimizer zero(optim::Adam(parameters_of(other), {.lr = 0.1}),
                                            accelerator.process_group());
        EXPECT_TRUE(contains_all(message_of<UsageError>([&] { accelerator.prepare(zero); }),
                                 {"ZeroRedundancyOptimizer", "fsdp_plugin"}));
      },
      sharded());
}

TrainerModel trained_model(const Net& net) {
  return wrap_model(net, [](auto& model, const Batch& batch) {
    return Batch{{"loss", F::mse_loss(model(batch["x"]), batch["y"])}};
  });
}

TrainingArguments arguments(const fs::path& folder, const std::string& fsdp) {
  TrainingArguments args;
  args.output_dir = folder;
  args.per_device_train_batch_size = 3;
  args.num_train_epochs = 2;
  args.learning_rate = 0.02;
  args.lr_scheduler_type = "constant";
  args.save_strategy = SaveStrategy::epoch;
  args.eval_strategy = IntervalStrategy::epoch;
  args.load_best_model_at_end = true;
  args.disable_tqdm = true;
  args.log_level = "error";
  args.fsdp = fsdp;
  args.fsdp_config = R"({"activation_checkpointing": true, "backward_prefetch": "no_prefetch"})";
  return args;
}

/// The losses of the evaluations after each epoch, and of the best weights at the end, there also on data of
/// which one rank has fewer batches than the other, or none.
Losses train_with(const std::string& fsdp, const fs::path& folder, double epochs) {
  Losses losses;
  TrainingArguments args = arguments(folder, fsdp);
  args.num_train_epochs = epochs;
  // Before the trainers seed the process's generator.
  const std::vector<Net> nets{seeded_net(4), seeded_net(4)};
  run_accelerators(
      2,
      [&](Accelerator& accelerator) {
        const Net& net = nets.at(static_cast<std::size_t>(accelerator.process_index()));
        Trainer trainer(accelerator, args,
                        {.model = trained_model(net), .train_dataset = samples(), .eval_dataset = samples()});
        trainer.train();
        trainer.evaluate();
        trainer.save_model();
        LogValues uneven = trainer.predict(samples(17)).metrics;
        for (const auto& metric : trainer.predict(samples(5)).metrics) uneven.push_back(metric);
        if (!accelerator.is_main_process()) return;
        for (const auto& entry : trainer.state().log_history)
          for (const auto& [name, value] : entry.values)
            if (name == "eval_loss") losses.push_back(value);
        for (const auto& [name, value] : uneven)
          if (name == "test_loss") losses.push_back(value);
      },
      accelerator_options(args));
  return losses;
}

TEST(FsdpArguments, TrainEvaluateSaveAndGoOn) {
  const TemporaryFolder whole, divided, zero2, resumed;
  const Losses expected = train_with("", whole.path(), 3);
  ASSERT_EQ(expected.size(), 6U);
  EXPECT_LT(expected[2], expected[0]);
  expect_near(train_with("full_shard", divided.path(), 3), expected);
  expect_near(train_with("shard_grad_op", zero2.path(), 3), expected);
  train_with("full_shard auto_wrap", resumed.path(), 2);
  EXPECT_NEAR(train_with("full_shard", resumed.path(), 3).back(), expected.back(), 1e-5);
  const auto saved = load_file(whole / "model.safetensors").tensors;
  for (const auto& folder : {divided.path(), resumed.path()}) {
    const auto tensors = load_file(folder / "model.safetensors").tensors;
    EXPECT_EQ(tensors.size(), saved.size());
    for (const auto& [name, tensor] : tensors)
      EXPECT_TRUE(torch::allclose(tensor, saved.at(name), 1e-4, 1e-5)) << name;
  }
}

TEST(FsdpArguments, AreChecked) {
  const auto complaint = [](const std::string& fsdp, const std::string& config) {
    return message_of<UsageError>([&] {
      TrainingArguments args;
      args.fsdp = fsdp;
      args.fsdp_config = config;
      check_training_arguments(args);
    });
  };
  EXPECT_TRUE(contains_all(complaint("no_shard", "{}"), {"'no_shard'", "full_shard, shard_grad_op"}));
  EXPECT_TRUE(contains_all(complaint("auto_wrap", "{}"), {"add full_shard"}));
  EXPECT_TRUE(contains_all(complaint("full_shard", R"({"min_num_params": 3})"),
                           {"min_num_params", "fsdp_config", "reshard_after_forward, "}));
  EXPECT_TRUE(
      contains_all(complaint("full_shard", R"({"fsdp_version": 1})"), {"fsdp_version 1", "expected 2"}));
  EXPECT_TRUE(contains_all(complaint("full_shard", R"({"backward_prefetch": "backward_post"})"),
                           {"backward_post", "backward_pre"}));
  const TemporaryFolder folder;
  run_accelerators(2, [&](Accelerator& accelerator) {
    const auto args = arguments(folder.path(), "full_shard");
    EXPECT_TRUE(contains_all(message_of<UsageError>([&] {
                               Trainer(accelerator, args,
                                       {.model = trained_model(seeded_net(4)), .train_dataset = samples()});
                             }),
                             {"fsdp_plugin", "accelerator_options(args)"}));
  });
  const auto args = arguments(folder.path(), "full_shard");
  run_accelerators(
      2,
      [&](Accelerator& accelerator) {
        Trainer trainer(accelerator, args,
                        {.model = trained_model(seeded_net(4)),
                         .train_dataset = samples(),
                         .eval_dataset = samples(),
                         .callbacks = {std::make_shared<EmaCallback>()}});
        EXPECT_TRUE(contains_all(message_of<UsageError>([&] { trainer.train(); }), {"EmaCallback", "fsdp"}));
      },
      accelerator_options(args));
}

}  // namespace
}  // namespace lockstep
