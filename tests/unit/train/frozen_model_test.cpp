#include "lockstep/train/frozen_model.hpp"

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/version.hpp"
#include "lockstep/train/accelerator.hpp"
#include "support/accelerators.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using testing::run_accelerators;

class FrozenModels : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, FrozenModels, ::testing::Values(1, 2, 3));

torch::nn::Sequential teacher_of(double value) {
  torch::nn::Sequential teacher(torch::nn::Linear(2, 3), torch::nn::BatchNorm1d(3));
  const torch::NoGradGuard no_grad;
  for (auto& parameter : teacher->parameters()) parameter.fill_(value).set_requires_grad(false);
  teacher->eval();
  return teacher;
}

/// As in a distillation: its weights are rank 0's, and nothing waits for its gradients.
TEST_P(FrozenModels, PrepareTakesAFrozenModel) {
  const testing::TemporaryFolder folder;
  for (const bool sharded : {false, true}) {
    AcceleratorOptions options{.gradient_accumulation_steps = 2};
    if (sharded) options.fsdp_plugin.emplace();
    run_accelerators(
        GetParam(),
        [&](Accelerator& accelerator) {
          auto teacher = teacher_of(accelerator.process_index() + 1);
          torch::nn::Linear student(2, 3);
          torch::optim::SGD sgd(student->parameters(), 0.1);
          auto [frozen, model, opt] = accelerator.prepare(teacher, student, sgd);
          EXPECT_TRUE(frozen.is_frozen());
          EXPECT_TRUE(frozen.parameters().empty());
          EXPECT_FALSE(model.is_frozen());
          for (const auto& parameter : teacher->parameters()) EXPECT_TRUE(parameter.eq(1).all().item<bool>());
          const at::Tensor before = teacher->parameters().front().clone();
          for (int i = 0; i < 4; ++i) {
            const auto step = accelerator.accumulate(frozen, model);
            const at::Tensor x = torch::ones({4, 2});
            accelerator.backward(torch::mse_loss(model(x), frozen(x).detach()));
            accelerator.clip_grad_norm_(model, 1.0);
            opt.step();
            opt.zero_grad();
          }
          accelerator.save_state(folder / "state");
          teacher->parameters().front().zero_();
          accelerator.load_state(folder / "state");
          EXPECT_TRUE(torch::equal(teacher->parameters().front(), before));
          EXPECT_THROWS(frozen.statistics(), UsageError, "no parameter that requires a gradient");
          teacher->parameters().front().set_requires_grad(true);
          const auto forward = [&] { frozen(torch::ones({4, 2})); };
          if (GetParam() == 1) {
            forward();
          } else {
            EXPECT_THROWS(forward(), UsageError, "'0.weight'", "after unfreezing");
          }
        },
        options);
  }
}

/// One rank has frozen it, the other has not.
TEST(Accelerator, PrepareRefusesAModelThatIsFrozenOnSomeRanks) {
  run_accelerators(2, [&](Accelerator& accelerator) {
    torch::nn::Linear model(2, 3);
    if (accelerator.is_main_process()) {
      for (auto& parameter : model->parameters()) parameter.set_requires_grad(false);
    }
    EXPECT_THROWS(accelerator.prepare(model), CommunicationError, "no parameter requires a gradient");
  });
}

}  // namespace
}  // namespace lockstep
