// Fully sharded models in Accelerator and Trainer, compared with DistributedDataParallel.

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>
#include <torch/optim/lbfgs.h>

#include <filesystem>

#include "fsdp_job.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/optim/zero_redundancy_optimizer.hpp"
#include "lockstep/train/callbacks.hpp"
#include "lockstep/train/trainer.hpp"
#include "support/accelerators.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

namespace F = torch::nn::functional;
using namespace testing;  // NOLINT(google-build-using-namespace)

/// Clipping computes the norm in another order, so the last bits may differ.
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

/// A pass that ends within a window leaves no gradient behind for the next step.
TEST(FsdpPlugin, AWindowOfAnAbandonedPassIsDiscarded) {
  for (const bool on : {true, false}) {
    run_accelerators(
        2,
        [&](Accelerator& accelerator) {
          const auto gradient_after = [&](bool abandon) {
            Job job(accelerator);
            const auto accumulate = [&](int micro_batches) {
              for (auto& batch : job.loader) {
                const auto micro = accelerator.accumulate(job.model);
                accelerator.backward(torch::mse_loss(job.model(batch["x"]), batch["y"]));
                if (--micro_batches == 0) break;
              }
              job.loader.rewind();
            };
            if (abandon) accumulate(1);
            accumulate(2);
            return job.net->last->weight.grad().clone();
          };
          const at::Tensor expected = gradient_after(false);
          EXPECT_TRUE(torch::equal(gradient_after(true), expected)) << (on ? "sharded" : "whole");
        },
        sharded(on, 2));
  }
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
        const JobNet other = seeded_net(2);
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

TrainerModel trained_model(const JobNet& net) {
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
/// which one rank has fewer batches or none.
Losses train_with(const std::string& fsdp, const fs::path& folder, double epochs) {
  Losses losses;
  TrainingArguments args = arguments(folder, fsdp);
  args.num_train_epochs = epochs;
  // Before the trainers seed the process's generator.
  const std::vector<JobNet> nets{seeded_net(4), seeded_net(4)};
  run_accelerators(
      2,
      [&](Accelerator& accelerator) {
        const JobNet& net = nets.at(static_cast<std::size_t>(accelerator.process_index()));
        Trainer trainer(
            accelerator, args,
            {.model = trained_model(net), .train_dataset = samples(48), .eval_dataset = samples(48)});
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

TEST(FsdpArguments, TrainEvaluateSaveAndResume) {
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
                                       {.model = trained_model(seeded_net(4)), .train_dataset = samples(48)});
                             }),
                             {"fsdp_plugin", "accelerator_options(args)"}));
  });
  const auto args = arguments(folder.path(), "full_shard");
  run_accelerators(
      2,
      [&](Accelerator& accelerator) {
        Trainer trainer(accelerator, args,
                        {.model = trained_model(seeded_net(4)),
                         .train_dataset = samples(48),
                         .eval_dataset = samples(48),
                         .callbacks = {std::make_shared<EmaCallback>()}});
        EXPECT_TRUE(contains_all(message_of<UsageError>([&] { trainer.train(); }), {"EmaCallback", "fsdp"}));
      },
      accelerator_options(args));
}

}  // namespace
}  // namespace lockstep
