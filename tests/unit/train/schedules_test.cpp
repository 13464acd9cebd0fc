// Schedules and parameter groups of prepared trainings, and what waits for a device or for other ranks.
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>
#include <torch/optim.h>

#include <cmath>
#include <functional>
#include <limits>

#include "lockstep/core/error.hpp"
#include "lockstep/data/dataset.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/lr_scheduler.hpp"
#include "lockstep/optim/parameter_groups.hpp"
#include "lockstep/parallel/local_sgd.hpp"
#include "lockstep/train/accelerator.hpp"
#include "support/accelerators.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"
#include "unit/optim/schedules_goldens.hpp"
#include "unit/train/small_training.hpp"

namespace lockstep {
namespace {

using testing::make_model;
using testing::rows;
using testing::run_accelerators;

double metric(std::size_t step) {
  return static_cast<double>(32 - std::min<std::size_t>(step, 16)) / 16 + static_cast<double>(step % 3) / 64;
}

TEST(ReduceLrOnPlateau, IsPyTorchs) {
  int cases = 0;
  for (const auto& golden : testing::schedule_goldens()) {
    if (!golden.options.contains("plateau")) continue;
    const auto& given = golden.options;
    const optim::PlateauOptions options{.mode = given.value("mode", "min"),
                                        .factor = given.value("factor", 0.1),
                                        .patience = given.value("patience", std::int64_t{10}),
                                        .threshold = given.value("threshold", 1e-4),
                                        .threshold_mode = given.value("threshold_mode", "rel"),
                                        .cooldown = given.value("cooldown", std::int64_t{0}),
                                        .min_lr = given.value("min_lr", 0.0),
                                        .eps = given.value("eps", 1e-8)};
    torch::optim::SGD sgd({torch::zeros({1}).requires_grad_()}, 0.5);
    optim::ReduceLrOnPlateau scheduler(sgd, options);
    for (std::size_t step = 0; step < golden.rates.size(); ++step) {
      if (step == 20) {
        optim::ReduceLrOnPlateau resumed(sgd, options);
        resumed.load_state_dict(scheduler.state_dict());
        scheduler.load_state_dict(resumed.state_dict());
      }
      scheduler.step(metric(step));
      EXPECT_DOUBLE_EQ(scheduler.last_lr()[0], golden.rates[step]) << golden.text << " at step " << step;
    }
    ++cases;
  }
  EXPECT_EQ(cases, 8);
}

TEST(ReduceLrOnPlateau, KeepsAnInfiniteBest) {
  torch::optim::SGD sgd({torch::zeros({1}).requires_grad_()}, 0.5);
  const optim::PlateauOptions options{.mode = "max", .factor = 0.5, .patience = 0};
  optim::ReduceLrOnPlateau scheduler(sgd, options);
  scheduler.step(std::numeric_limits<double>::infinity());
  optim::ReduceLrOnPlateau resumed(sgd, options);
  resumed.load_state_dict(scheduler.state_dict());
  resumed.step(1);
  EXPECT_EQ(resumed.last_lr()[0], 0.25);
}

struct BlockImpl : torch::nn::Module {
  BlockImpl() {
    linear = register_module("linear", torch::nn::Linear(2, 2));
    ln_1 = register_module("ln_1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({2})));
    q_norm = register_module("q_norm", torch::nn::Linear(2, 2));
    normal = register_module("normal", torch::nn::Linear(2, 2));
  }
  torch::nn::Linear linear{nullptr}, q_norm{nullptr}, normal{nullptr};
  torch::nn::LayerNorm ln_1{nullptr};
};
TORCH_MODULE(Block);

TEST(ParameterGroups, LeaveBiasesAndNormsWithoutDecay) {
  Block block;
  const auto groups = optim::parameter_groups(block, optim::AdamWOptions{.lr = 1, .weight_decay = 0.5});
  ASSERT_EQ(groups.size(), 2U);
  ASSERT_EQ(groups[0].parameters.size(), 2U);
  EXPECT_TRUE(groups[0].parameters[0].is_same(block->linear->weight));
  EXPECT_TRUE(groups[0].parameters[1].is_same(block->normal->weight));
  EXPECT_EQ(groups[0].options.weight_decay, 0.5);
  EXPECT_EQ(groups[1].parameters.size(), 6U);
  EXPECT_EQ(groups[1].options.weight_decay, 0);
  EXPECT_EQ(groups[1].options.lr, 1);
}

/// How often an operation of LibTorch read a tensor's value in this thread.
class ItemCounter {
 public:
  ItemCounter()
      : handle_(at::addThreadLocalCallback(
            at::RecordFunctionCallback([](const at::RecordFunction& function)
                                           -> std::unique_ptr<at::ObserverContext> {
              if (std::string(function.name()) == "aten::item") ++count();
              return nullptr;
            }).scopes({at::RecordScope::FUNCTION}))) {
    count() = 0;
  }
  ~ItemCounter() { at::removeCallback(handle_); }
  static int& count() {
    static thread_local int count = 0;
    return count;
  }

 private:
  at::CallbackHandle handle_;
};

/// A number of tokens that was counted on a device stays there: nothing waits for forward.
TEST(WeightedLosses, AreNotWaitedFor) {
  const auto train = [](bool on_device, bool of_all) {
    at::Tensor weights;
    run_accelerators(
        2,
        [&](Accelerator& accelerator) {
          auto model = make_model();
          torch::optim::SGD sgd(model->parameters(), 0.1);
          auto [ddp, opt] = accelerator.prepare(model, sgd);
          const ItemCounter waits;
          for (int i = 0; i < 4; ++i) {
            const auto window = accelerator.accumulate(ddp);
            const double tokens = 3 * i + accelerator.process_index();
            const at::Tensor loss = ddp(rows(1)).sum() * tokens / 7;
            if (on_device) accelerator.backward(loss, torch::full({}, tokens, torch::kLong));
            if (!on_device) accelerator.backward(loss, tokens);
            opt.step();
            opt.zero_grad();
          }
          EXPECT_EQ(ItemCounter::count(), 0);
          EXPECT_EQ(torch::ones({}).item<double>(), 1);
          EXPECT_EQ(ItemCounter::count(), 1) << "the counter counts";
          if (accelerator.is_main_process()) weights = model->bias.detach().clone();
        },
        {.gradient_accumulation_steps = 2, .gradient_accumulation = {.weights_of_all_ranks = of_all}});
    return weights;
  };
  for (const bool of_all : {true, false})
    EXPECT_TRUE(torch::equal(train(true, of_all), train(false, of_all))) << of_all;
}

/// Averages after every two steps, and again at the end.
TEST(LocalSgdTest, AveragesParametersNowAndThen) {
  run_accelerators(2, [](Accelerator& accelerator) {
    auto model = make_model();
    torch::optim::SGD sgd(model->parameters(), 1.0);
    auto [ddp, opt] = accelerator.prepare(model, sgd);
    const auto bias = [&] { return model->bias.item<double>(); };
    const double own = accelerator.process_index() == 0 ? 2 : 4;
    LocalSgd local_sgd(ddp, 2);
    std::vector<double> seen;
    for (int i = 0; i < 3; ++i) {
      accelerator.backward(ddp(rows(1)).sum() * own);
      opt.step();
      opt.zero_grad();
      local_sgd.step();
      seen.push_back(bias());
    }
    local_sgd.finish();
    EXPECT_EQ(seen, (std::vector<double>{-own, -6, -6 - own}));
    EXPECT_EQ(bias(), -9);
    EXPECT_THROWS(LocalSgd(ddp, 0), UsageError, "at least 1");
  });
}

}  // namespace
}  // namespace lockstep
