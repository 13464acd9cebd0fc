// Whole trainings on the CPU and on a GPU: sharded models, activation checkpoints, Trainer, and their
// profiles.

#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "fsdp_job.hpp"
#include "lockstep/parallel/activation_checkpoint.hpp"
#include "lockstep/train/callbacks.hpp"
#include "lockstep/train/profiler.hpp"
#include "on_device.hpp"

namespace lockstep {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

/// Also after its checkpoint was read.
TEST_P(RanksOnDevice, AShardedModelTrainsAsTheWholeOne) {
  for (const auto precision : {MixedPrecision::no, MixedPrecision::bf16, MixedPrecision::fp16}) {
    if (precision == MixedPrecision::fp16 && !is_cuda()) continue;
    for (const int ranks : {1, 2}) {
      SCOPED_TRACE(::testing::Message()
                   << "precision " << static_cast<int>(precision) << ", " << ranks << " ranks");
      const auto losses_of = [&](bool on) {
        const TemporaryFolder folder;
        Losses losses;
        AcceleratorOptions options = sharded(on, 2);
        options.mixed_precision = precision;
        run(
            ranks,
            [&](Accelerator& accelerator) {
              // The ranks may be processes, each with its own folder.
              const fs::path state =
                  accelerator.process_group().broadcast_object((folder / "state").string());
              Job job(accelerator);
              EXPECT_EQ(job.model.is_fully_sharded(), on);
              Losses own = job.train(8);
              accelerator.save_state(state, {}, {.asynchronous = true});
              const Losses expected = job.train(4);
              accelerator.wait_for_save();
              accelerator.load_state(state);
              EXPECT_EQ(job.train(4), expected);
              own.insert(own.end(), expected.begin(), expected.end());
              if (accelerator.is_main_process()) losses = own;
            },
            options);
        return losses;
      };
      const Losses whole = losses_of(false), parts = losses_of(true);
      ASSERT_EQ(parts.size(), whole.size());
      for (std::size_t i = 0; i < whole.size(); ++i)
        EXPECT_NEAR(parts[i], whole[i], precision == MixedPrecision::no ? 1e-5 : 3e-2) << i;
    }
  }
}

TEST_P(OnDevice, ACheckpointedFunctionDrawsTheSameNumbersAgain) {
  torch::nn::Sequential net(torch::nn::Linear(6, 64), torch::nn::Dropout(0.5), torch::nn::Linear(64, 1));
  net->to(device());
  const auto gradients = [&](bool checkpointed) {
    torch::manual_seed(3);
    net->zero_grad();
    const at::Tensor rows = at::arange(48).mul(0.37).sin().view({8, 6}).to(device());
    const auto forward = [&](const at::Tensor& input) { return net->forward(input); };
    const at::Tensor output = checkpointed ? checkpoint(forward, rows) : forward(rows);
    // Numbers drawn in between are not those of the recomputation.
    at::rand({7}, rows.options());
    output.square().sum().backward();
    std::vector<at::Tensor> result;
    for (const auto& parameter : net->parameters()) result.push_back(parameter.grad().clone());
    result.push_back(at::rand({7}, rows.options()));
    return result;
  };
  const auto plain = gradients(false), again = gradients(true);
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(at::equal(plain[i], again[i])) << i;
}

/// With dropout, averaged weights and evaluations, stopped in the middle and continued.
TEST_P(OnDevice, ATrainerContinuesBitForBit) {
  const TemporaryFolder folder;
  const auto train = [&](const std::string& name, std::int64_t stop_at) {
    TrainingArguments args = arguments(folder);
    args.output_dir = folder / name;
    args.bf16 = true;
    args.eval_strategy = IntervalStrategy::epoch;
    Outcome outcome;
    run(
        1,
        [&](const Accelerator& accelerator) {
          TrainerComponents parts{.model = small_model(/*dropout=*/true),
                                  .train_dataset = samples(44),
                                  .eval_dataset = samples(13)};
          parts.callbacks = {std::make_shared<EmaCallback>(0.9), std::make_shared<MemoryCallback>(),
                             std::make_shared<ThroughputCallback>()};
          if (stop_at > 0) parts.callbacks.push_back(std::make_shared<StopAt>(stop_at));
          Trainer trainer(accelerator, args, std::move(parts));
          outcome = outcome_of(trainer, trainer.train());
        },
        accelerator_options(args));
    return outcome;
  };
  const Outcome whole = train("whole", 0);
  EXPECT_TRUE(train("parts", 7).output.preempted);
  const Outcome resumed = train("parts", 0);
  expect_same(whole, resumed);
  EXPECT_EQ(whole.logged("eval_loss"), resumed.logged("eval_loss"));
  for (const auto& weight : whole.weights) EXPECT_EQ(weight.device(), device());
}

TEST_P(OnDevice, AProfileHasWhatTheDeviceDid) {
  const TemporaryFolder folder;
  Profiler profiler({.schedule_option = {.wait = 1, .warmup = 1, .active = 1, .repeat = 1},
                     .output_trace_dir = folder.path()},
                    0);
  const at::Tensor square = at::ones({64, 64}, at::TensorOptions(device()));
  for (int step = 0; step < 3; ++step) {
    at::mm(square, square).sum().item();
    profiler.step();
  }
  profiler.stop();
  ASSERT_EQ(profiler.traces().size(), 1U);
  std::ifstream file(profiler.traces().front());
  const auto trace = nlohmann::json::parse(file);
  int operators = 0, kernels = 0;
  for (const auto& event : trace.at("traceEvents")) {
    const std::string category = event.value("cat", "");
    operators += static_cast<int>(category == "cpu_op");
    kernels += static_cast<int>(category == "kernel");
  }
  EXPECT_GT(operators, 0);
  EXPECT_EQ(kernels > 0, is_cuda());
}

}  // namespace
}  // namespace lockstep
