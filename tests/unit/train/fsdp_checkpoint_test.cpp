// Checkpoints of fully sharded models, and the dtypes in which they compute.

#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <filesystem>
#include <functional>

#include "fsdp_job.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "support/accelerators.hpp"
#include "support/peak_bytes.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

TEST(FsdpPlugin, ResumesWithTheSameBits) {
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

/// Written on one number of ranks, read on another and written again: the files have the same content.
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

/// Its optimizer keeps what it had, and it may be frozen when that is loaded.
TEST(FsdpPlugin, WhatWasFrozenAfterSomeStepsKeepsItsOptimizerState) {
  const TemporaryFolder folder;
  const auto freeze = [](Job& job) { job.net->shared->weight.requires_grad_(false); };
  run_accelerators(
      2,
      [&](Accelerator& accelerator) {
        Job job(accelerator);
        job.train(2);
        freeze(job);
        job.train(1);
        accelerator.save_state(folder / "first");
      },
      sharded());
  EXPECT_EQ(
      load_file(folder / "first" / "optimizer.safetensors").tensors.at("state.shared.weight.exp_avg").sizes(),
      at::IntArrayRef({5, 5}));
  for (const bool is_frozen : {true, false}) {
    for (const bool is_sharded : {true, false}) {
      const fs::path second = folder / (std::to_string(is_frozen) + std::to_string(is_sharded));
      run_accelerators(
          3,
          [&](Accelerator& accelerator) {
            Job job(accelerator, 77);
            if (is_frozen) freeze(job);
            accelerator.load_state(folder / "first");
            accelerator.save_state(second);
            // Distributed data parallel does not train what was frozen after it was wrapped.
            if (is_sharded || !is_frozen) job.train(1);
          },
          sharded(is_sharded));
      for (const char* file : {"model.safetensors", "optimizer.safetensors"})
        expect_same_tensors(folder / "first" / file, second / file);
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
          JobNet net = seeded_net(5);
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

/// The other ranks do not hang if rank 0 cannot write.
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

class Averages final : public Checkpointable {
 public:
  SafeTensors state_dict() const override { return {}; }
  void load_state_dict(const SafeTensors&) override {}
};

TEST(Checkpoints, NameTheObjectThatTheyHaveNot) {
  const TemporaryFolder folder;
  Accelerator writer;
  writer.save_state(folder / "kept");
  Accelerator reader;
  Averages averages;
  reader.register_for_checkpointing("averages", averages);
  EXPECT_THROWS(reader.load_state(folder / "kept"), DataError, "no custom_checkpoint_averages.safetensors",
                "had not registered 'averages'");
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

}  // namespace
}  // namespace lockstep
