// Arguments that change what a training computes, each on one rank and on two.

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "lockstep/core/error.hpp"
#include "support/throws.hpp"
#include "unit/train/small_trainings.hpp"

namespace lockstep {
namespace {

using testing::arguments;
using testing::expect_same;
using testing::Outcome;
using testing::samples;
using testing::small_model;
using testing::StopAt;
using testing::TemporaryFolder;
using testing::train_on;
using testing::train_plainly;

class Ranks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Trainer, Ranks, ::testing::Values(1, 2));

TEST_P(Ranks, TrainEvaluateAndResumeInBfloat16) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.eval_strategy = IntervalStrategy::epoch;
  args.output_dir = folder / "float32";
  const Outcome full = train_plainly(GetParam(), args);
  args.bf16 = true;
  args.output_dir = folder / "whole";
  const Outcome whole = train_plainly(GetParam(), args);
  ASSERT_EQ(whole.logged("loss").size(), full.logged("loss").size());
  for (const char* name : {"loss", "eval_loss"}) {
    EXPECT_NE(whole.logged(name), full.logged(name));
    for (std::size_t i = 0; i < whole.logged(name).size(); ++i)
      EXPECT_NEAR(whole.logged(name)[i], full.logged(name)[i], 2e-2) << name << " " << i;
  }
  for (const auto& weight : whole.weights) EXPECT_EQ(weight.scalar_type(), at::kFloat);
  args.output_dir = folder / "parts";
  EXPECT_TRUE(train_plainly(GetParam(), args, 4).output.preempted);
  const Outcome resumed = train_plainly(GetParam(), args);
  expect_same(whole, resumed);
  EXPECT_EQ(whole.logged("eval_loss"), resumed.logged("eval_loss"));
}

TEST(TrainerPrecision, RefusesFloat16OnACpu) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.device = "cpu";
  args.fp16 = true;
  const TrainerComponents parts{.model = small_model(), .train_dataset = samples(8)};
  EXPECT_THROWS(Trainer(args, parts), UsageError, "fp16 needs a CUDA device", "Use bf16");
}

/// Records the lengths of the samples of each step.
class Lengths final : public TrainerCallback {
 public:
  void on_step_begin(CallbackContext& /*event*/) override { of_steps.emplace_back(); }
  std::vector<std::vector<std::int64_t>> of_steps;
};

/// A training grouped by length: its outcome, and the lengths of rank 0's samples per step.
std::pair<Outcome, std::vector<std::vector<std::int64_t>>> train_by_length(int ranks, TrainingArguments args,
                                                                           std::int64_t stop_at) {
  const at::Tensor x = at::linspace(-1, 1, 64 * 3).reshape({64, 3});
  const auto data = std::make_shared<TensorDataset>(
      Batch{{"x", x}, {"y", x.sum(1, true).sin()}, {"length", at::arange(64) * 29 % 64}});
  args.train_sampling_strategy = SamplingStrategy::group_by_length;
  args.length_column_name = "length";
  args.gradient_accumulation_steps = 1;
  args.global_batch_size = 8;
  const auto lengths = std::make_shared<Lengths>();
  Outcome outcome = train_on(ranks, args, [&](const Accelerator& accelerator) {
    TrainerComponents parts{.model = small_model(), .train_dataset = data};
    if (stop_at > 0) parts.callbacks.push_back(std::make_shared<StopAt>(stop_at));
    if (!accelerator.is_main_process()) return parts;
    parts.callbacks.push_back(lengths);
    parts.compute_loss = [lengths](const Batch& outputs, const Batch& batch) -> Loss {
      for (std::int64_t row = 0; row < batch.size(); ++row)
        lengths->of_steps.back().push_back(batch["length"][row].item<std::int64_t>());
      return {outputs["loss"]};
    };
    return parts;
  });
  return {std::move(outcome), lengths->of_steps};
}

TEST(TrainerOrder, NamesATensorThatHasNoLength) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.train_sampling_strategy = SamplingStrategy::group_by_length;
  EXPECT_THROWS(train_plainly(1, args), UsageError, "length_column_name", "'input_ids'", "x", "y");
}

TEST(TrainerOrder, GroupsByLengthTheSameWayOnAnyNumberOfRanks) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  std::vector<Outcome> outcomes;
  for (const int ranks : {1, 2}) {
    args.output_dir = folder / std::to_string(ranks);
    auto [whole, lengths] = train_by_length(ranks, args, 0);
    ASSERT_EQ(lengths.size(), 24U);
    std::int64_t spread = 0;
    for (const auto& step : lengths) {
      const auto [low, high] = std::minmax_element(step.begin(), step.end());
      spread += *high - *low;
    }
    EXPECT_LE(spread, 24 * 34) << "in any order, eight of 64 lengths lie 49 apart, and four 38";
    args.output_dir = folder / (std::to_string(ranks) + "parts");
    EXPECT_TRUE(train_by_length(ranks, args, 11).first.output.preempted);
    expect_same(whole, train_by_length(ranks, args, 0).first);
    outcomes.push_back(std::move(whole));
  }
  for (std::size_t i = 0; i < outcomes[0].weights.size(); ++i)
    EXPECT_TRUE(at::allclose(outcomes[0].weights[i], outcomes[1].weights[i], 1e-4, 1e-6))
        << "parameter " << i;
}

/// Two ranks, one step of SGD on a single weight: rank 0 has a sum of 2 x 3 tokens, rank 1 of 8 x 1.
Outcome one_weighted_step(bool over_devices) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.average_tokens_across_devices = over_devices;
  args.optim = "sgd";
  args.lr_scheduler_type = "constant";
  args.learning_rate = 1;
  args.max_grad_norm = 0;
  args.per_device_train_batch_size = args.gradient_accumulation_steps = args.max_steps = 1;
  args.logging_steps = 1;
  args.train_sampling_strategy = SamplingStrategy::sequential;
  const auto data = std::make_shared<TensorDataset>(
      Batch{{"x", at::tensor({{6.0F}, {8.0F}})}, {"tokens", at::tensor({3, 1})}});
  return train_on(2, args, [&](const Accelerator&) {
    torch::nn::Linear net(torch::nn::LinearOptions(1, 1).bias(false));
    const torch::NoGradGuard no_grad;
    net->weight.fill_(1);
    auto model = wrap_model(net, [](auto& linear, const Batch& batch) {
      return Batch{{"loss_sum", linear(batch["x"]).sum()}, {"loss_weight", batch["tokens"].sum()}};
    });
    return TrainerComponents{.model = model, .train_dataset = data};
  });
}

TEST(TrainerLoss, WeighsEachTokenOrEachRankTheSame) {
  const Outcome tokens = one_weighted_step(true);
  EXPECT_NEAR(tokens.weights[0].item<double>(), 1 - 14.0 / 4, 1e-6);
  EXPECT_NEAR(tokens.logged("loss").front(), 14.0 / 4, 1e-6);
  const Outcome ranks = one_weighted_step(false);
  EXPECT_NEAR(ranks.weights[0].item<double>(), 1 - (6.0 / 3 + 8.0) / 2, 1e-6);
  EXPECT_NEAR(ranks.logged("loss").front(), (6.0 / 3 + 8.0) / 2, 1e-6);
}

/// Makes each step take at least 50 ms.
class Slow final : public TrainerCallback {
 public:
  void on_step_begin(CallbackContext& /*event*/) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
};

TEST_P(Ranks, CountTheTimeOfAllRestarts) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.max_duration = "0.6sec";
  args.lr_scheduler_type = "constant";
  args.eval_strategy = IntervalStrategy::steps, args.save_strategy = SaveStrategy::steps;
  args.eval_steps = args.save_steps = 1000;
  const auto train = [&](std::int64_t stop_at) {
    return train_on(GetParam(), args, [&](const Accelerator&) {
      TrainerComponents parts{.model = small_model(),
                              .train_dataset = samples(44),
                              .eval_dataset = samples(5),
                              .callbacks = {std::make_shared<Slow>()}};
      if (stop_at > 0) parts.callbacks.push_back(std::make_shared<StopAt>(stop_at));
      return parts;
    });
  };
  const Outcome first = train(3);
  ASSERT_TRUE(first.output.preempted);
  EXPECT_GE(first.state.train_seconds, 0.15);
  const Outcome second = train(0);
  EXPECT_FALSE(second.output.preempted);
  EXPECT_GE(second.state.train_seconds, 0.6);
  // Steps take 0.05 s and more: if the first run's time were not counted, there could be more steps.
  EXPECT_LE(second.output.global_step, 13);
  EXPECT_EQ(second.state.max_steps, second.output.global_step);
  EXPECT_EQ(second.logged("eval_loss").size(), 1U) << "the last step has an evaluation";
  EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(args.output_dir) /
                                      checkpoint_name(second.output.global_step)));
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(train(0).output.global_step, second.output.global_step) << "there is no time left";
  const std::string said = ::testing::internal::GetCapturedStdout();
  const std::string step = std::to_string(second.output.global_step);
  EXPECT_TRUE(testing::contains_all(said, {"already finished: step " + step +
                                  ", with max_duration 0.6sec. To train on, raise max_duration;"}))
      << said;
}

/// Two nodes of one rank each, with a loss that is not finite.
std::string warnings_of_two_nodes(bool on_each_node) {
  const TemporaryFolder folder;
  TrainingArguments args = arguments(folder);
  args.log_on_each_node = on_each_node;
  args.max_steps = 2;
  ::testing::internal::CaptureStderr();
  testing::run_group(2, [&](const ProcessGroup& group) {
    World world;
    world.rank = world.group_rank = group.rank();
    world.world_size = world.group_world_size = group.size();
    const Accelerator accelerator(world, group, accelerator_options(args));
    TrainerComponents parts{.model = small_model(), .train_dataset = samples(44)};
    parts.compute_loss = [](const Batch& outputs, const Batch&) -> Loss { return {outputs["loss"] / 0}; };
    Trainer(accelerator, args, parts).train();
  });
  return ::testing::internal::GetCapturedStderr();
}

TEST(TrainerLog, WarnsOnEachNodeOrOnce) {
  const std::string each = warnings_of_two_nodes(true);
  EXPECT_TRUE(testing::contains_all(each, {"WARNING trainer: 2 of", "WARNING [RANK 1] trainer: 2 of"}));
  const std::string once = warnings_of_two_nodes(false);
  EXPECT_TRUE(testing::contains_all(once, {"WARNING trainer: 2 of"}));
  EXPECT_EQ(once.find("[RANK 1]"), std::string::npos) << once;
}

}  // namespace
}  // namespace lockstep
