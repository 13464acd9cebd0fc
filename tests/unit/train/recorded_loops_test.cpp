// Loops of one's own whose micro-batches are recorded as graphs, by a tape that stands for CUDA.

#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include "comm/cuda/graph_recorder.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/train/graphed_step.hpp"
#include "support/graph_tape.hpp"
#include "train/graphs/host_bound_watch.hpp"
#include "unit/train/small_trainings.hpp"

namespace lockstep {
namespace {

using testing::GraphTape;
using testing::samples;

/// The losses of a loop of one's own, then the weights.
std::vector<at::Tensor> looped(std::int64_t accumulation, bool graphed, bool clears_first) {
  Accelerator accelerator(AcceleratorOptions{.gradient_accumulation_steps = accumulation});
  torch::nn::Linear net(3, 1);
  {
    const torch::NoGradGuard no_grad;
    net->weight.fill_(0.25);
    net->bias.zero_();
  }
  optim::AdamW adam(net->parameters(), {.lr = 0.05});
  DataLoader loader(samples(44), {.batch_size = 4});
  auto [model, optimizer, batches] = accelerator.prepare(net, adam, loader);
  const auto micro_batch = [&, &model = model,
                            &optimizer = optimizer](const std::vector<at::Tensor>& inputs) {
    // In each phase, so that models do the same in all.
    EXPECT_EQ(comm::RecordableWork::is_here(), graphed);
    if (clears_first) optimizer.zero_grad();
    const at::Tensor sum = (model(inputs[0]) - inputs[1]).square().sum();
    accelerator.backward(sum, inputs[1].abs().sum());
    if (accelerator.sync_gradients()) accelerator.clip_grad_norm_(model, 0.5);
    optimizer.step();
    if (!clears_first) optimizer.zero_grad();
    return std::vector{sum};
  };
  GraphedStep step(accelerator, micro_batch, {.warmup_steps = 3});
  std::vector<at::Tensor> results;
  int replays = 0;
  for (int epoch = 0; epoch < 5; ++epoch) {
    for (auto& batch : batches) {
      const auto window = accelerator.accumulate();
      const std::vector<at::Tensor> inputs{batch["x"], batch["y"]};
      results.push_back((graphed ? step(inputs) : micro_batch(inputs)).front().detach().clone());
      replays += step.is_recorded() ? 1 : 0;
      for (auto& group : adam.param_groups())
        group.options().set_lr(0.05 / static_cast<double>(1 + results.size()));
    }
  }
  EXPECT_EQ(replays > 20, graphed);
  EXPECT_FALSE(comm::RecordableWork::is_here());
  for (const auto& parameter : net->parameters()) results.push_back(parameter.detach().clone());
  return results;
}

TEST(RecordedLoops, GraphedStepsAddUpGradients) {
  for (const std::int64_t accumulation : {1, 2, 3}) {
    for (const bool clears_first : {false, true}) {
      SCOPED_TRACE(accumulation * 10 + (clears_first ? 1 : 0));
      const auto usual = looped(accumulation, false, clears_first);
      const GraphTape tape;
      const auto recorded = looped(accumulation, true, clears_first);
      ASSERT_EQ(usual.size(), recorded.size());
      for (std::size_t i = 0; i < usual.size(); ++i)
        EXPECT_TRUE(at::allclose(usual[i], recorded[i], 1e-5, 1e-5)) << i;
    }
  }
}

/// Every fourth mark, or none, is not reached in time.
TEST(HostBound, IsSaidOnceWhereTheDeviceWaits) {
  for (const int every : {0, 20, 4}) {
    int marks = 0;
    train::HostBoundWatch watch([&] {
      ++marks;
      return [is_reached = every == 0 || marks % every != 0] { return is_reached; };
    });
    std::vector<std::string> said;
    for (int step = 0; step < 200; ++step) {
      watch.before_step();
      if (const auto text = watch.after_step()) said.push_back(*text);
    }
    EXPECT_EQ(marks, 40);
    ASSERT_EQ(said.size(), every == 4 ? 0U : 1U);
    if (every == 20) {
      EXPECT_NE(said.front().find("in 38 of 40 steps"), std::string::npos) << said.front();
    }
  }
}

}  // namespace
}  // namespace lockstep
