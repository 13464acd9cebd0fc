// What happens between backward and the optimizer's step, with threads as ranks: accumulation, weighted
// losses, clipping, autocast, schedules.
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/optim.h>
#include <torch/types.h>

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
#include "unit/train/small_training.hpp"

namespace lockstep {
namespace {

using testing::accumulating;
using testing::make_loader;
using testing::make_model;
using testing::rows;
using testing::run_accelerators;
using testing::TemporaryFolder;

at::Tensor loss_of(const at::Tensor& output) { return output.pow(2).sum(); }

class Worlds : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Worlds, ::testing::Values(1, 2));

/// Seven batches in windows of three: the last window has one batch and is divided by one.
TEST_P(Worlds, WindowsEndWithTheLoader) {
  const int size = GetParam();
  run_accelerators(
      size,
      [&](Accelerator& accelerator) {
        auto model = make_model();
        torch::optim::SGD sgd(model->parameters(), 0.0);
        auto loader = make_loader(7 * size, 1);
        auto [ddp, opt, batches] = accelerator.prepare(model, sgd, loader);
        for (int epoch = 0; epoch < 2; ++epoch) {
          std::vector<bool> synced;
          std::vector<double> gradients;
          for (auto& batch : batches) {
            const auto step = accelerator.accumulate(ddp);
            synced.push_back(accelerator.sync_gradients());
            accelerator.backward(ddp(batch["x"]).sum());
            opt.step();
            if (synced.back()) gradients.push_back(model->bias.grad().item<double>());
            opt.zero_grad();
            EXPECT_EQ(model->bias.grad().defined(), !synced.back());
          }
          EXPECT_EQ(synced, (std::vector<bool>{false, false, true, false, false, true, true}));
          EXPECT_EQ(gradients, std::vector<double>(3, 1.0));
        }
        EXPECT_TRUE(accelerator.sync_gradients());
      },
      accumulating(3));
}

/// An abandoned window does not affect a step outside of it.
TEST(Gradients, OutsideOfWindowsAreStepsOfTheirOwn) {
  run_accelerators(
      1,
      [](Accelerator& accelerator) {
        auto model = make_model();
        auto ddp = accelerator.prepare(model);
        {
          const auto step = accelerator.accumulate();
          accelerator.backward(ddp(rows(1)).sum());
        }
        for (const bool weighted : {false, true}) {
          ddp.zero_grad();
          const at::Tensor sum = ddp(rows(2)).sum();
          weighted ? accelerator.backward(sum, 2) : accelerator.backward(sum / 2);
          EXPECT_EQ(model->bias.grad().item<double>(), 1);
        }
      },
      accumulating(3));
}

/// The earlier gradients of a window would be divided by the weights, or those of a weighted loss not be
/// divided.
TEST(Gradients, KindsOfLossesAreNotMixedInAWindow) {
  for (const bool weighted_first : {false, true}) {
    for (const bool in_last_batch : {false, true}) {
      run_accelerators(
          1,
          [&](Accelerator& accelerator) {
            auto model = make_model();
            auto ddp = accelerator.prepare(model);
            const auto backward = [&](bool weighted) {
              weighted ? accelerator.backward(ddp(rows(1)).sum(), 1)
                       : accelerator.backward(ddp(rows(1)).sum());
            };
            {
              const auto first = accelerator.accumulate();
              backward(weighted_first);
              if (!in_last_batch) EXPECT_THROWS(backward(!weighted_first), UsageError, "cannot be mixed");
            }
            const auto last = accelerator.accumulate();
            if (in_last_batch) EXPECT_THROWS(backward(!weighted_first), UsageError, "cannot be mixed");
            backward(weighted_first);
            EXPECT_EQ(model->bias.grad().item<double>(), 1);
          },
          accumulating(2));
    }
  }
}

enum class Place : std::uint8_t { top, top_inside, bottom, after_scope };

/// Where programs clear the gradients, and where they step.
TEST_P(Worlds, WindowsAreTheSameWhereverGradientsAreCleared) {
  const auto train = [&](Place place) {
    at::Tensor weight;
    run_accelerators(
        GetParam(),
        [&](Accelerator& accelerator) {
          auto model = make_model(), other = make_model();
          torch::optim::SGD sgd(model->parameters(), 0.01), second(other->parameters(), 0.01);
          auto [ddp, ddp_2, opt, opt_2] = accelerator.prepare(model, other, sgd, second);
          for (int i = 0; i < 9; ++i) {
            const at::Tensor x = rows(i + 1 + accelerator.process_index());
            if (place == Place::top) {
              opt.zero_grad();
              opt_2.zero_grad();
            }
            {
              const auto step = accelerator.accumulate();
              EXPECT_EQ(accelerator.sync_gradients(), i % 3 == 2);
              if (place == Place::top_inside) opt.zero_grad();
              accelerator.backward(loss_of(ddp(x)).mean());
              if (place == Place::bottom) {
                opt.step();
                opt.zero_grad();
              }
              // Between the backwards of two models, as in adversarial training.
              if (place == Place::top_inside) {
                opt.step();
                opt_2.zero_grad();
              }
              accelerator.backward(loss_of(ddp_2(x)).mean() * 2);
              if (place == Place::bottom || place == Place::top_inside) opt_2.step();
              if (place == Place::bottom) opt_2.zero_grad();
            }
            EXPECT_EQ(accelerator.sync_gradients(), i % 3 == 2);
            if (place == Place::top || place == Place::after_scope) {
              opt.step();
              opt_2.step();
            }
            if (place == Place::after_scope) {
              opt.zero_grad();
              opt_2.zero_grad();
            }
          }
          if (accelerator.is_main_process())
            weight = at::cat({model->weight, other->weight}).detach().clone();
        },
        accumulating(3));
    return weight;
  };
  const at::Tensor wanted = train(Place::bottom);
  for (const auto place : {Place::top, Place::top_inside, Place::after_scope})
    EXPECT_TRUE(torch::equal(train(place), wanted)) << static_cast<int>(place);
}

/// Like two networks that are trained by losses of their own: neither changes the other's gradients.
TEST_P(Worlds, EachWeightedLossIsDividedByItsOwnWeight) {
  for (const bool accumulates : {true, false}) {
    for (const bool of_all : {true, false}) {
      run_accelerators(GetParam(),
                       [&](Accelerator& accelerator) {
                         auto one = make_model(), other = make_model();
                         auto [first, second] = accelerator.prepare(one, other);
                         const auto backward = [&] {
                           accelerator.backward(first(rows(4)).sum(), 4);
                           accelerator.backward(second(rows(2)).sum(), 2);
                           accelerator.backward(second(rows(8)).sum() * 3, torch::full({}, 8));
                         };
                         for (int i = 0; i < 2; ++i) {
                           if (accumulates) {
                             const auto step = accelerator.accumulate();
                             backward();
                           } else {
                             backward();
                           }
                           EXPECT_EQ(one->bias.grad().item<double>(), 1);
                           EXPECT_EQ(other->bias.grad().item<double>(), 4);
                           EXPECT_TRUE(torch::allclose(one->weight.grad(), rows(4).mean(0, true)));
                           first.zero_grad();
                           second.zero_grad();
                         }
                       },
                       {.gradient_accumulation = {.weights_of_all_ranks = of_all}});
    }
  }
  run_accelerators(
      GetParam(),
      [](Accelerator& accelerator) {
        auto model = make_model();
        auto ddp = accelerator.prepare(model);
        const auto step = accelerator.accumulate();
        accelerator.backward(ddp(rows(4)).sum(), 4);
        EXPECT_THROWS(accelerator.backward(ddp(rows(4)).sum(), 4), UsageError, "window of 2", "Add the sums");
      },
      accumulating(2));
}

/// The gradient of a sum over many tokens does not fit float16; that of their mean does.
TEST(WeightedLosses, AreDividedBeforeAHookMakesThemNarrow) {
  for (const char* hook : {"fp16", "power_sgd"}) {
    for (const bool each : {false, true}) {
      for (const std::int64_t steps : {1, 3}) {
        run_accelerators(2,
                         [&](Accelerator& accelerator) {
                           auto model = make_model();
                           auto ddp = accelerator.prepare(model);
                           const double tokens = 300'000 * (accelerator.process_index() + 1);
                           for (std::int64_t i = 0; i < steps; ++i) {
                             const auto step = accelerator.accumulate();
                             accelerator.backward(ddp(rows(1)).sum() * tokens, tokens);
                           }
                           EXPECT_NEAR(model->bias.grad().item<double>(), 1, 1e-3) << hook << each << steps;
                           EXPECT_TRUE(torch::allclose(model->weight.grad(), rows(1), 1e-3));
                         },
                         {.gradient_accumulation_steps = steps,
                          .gradient_accumulation = {.sync_each_batch = each},
                          .comm_hook = hook,
                          .comm_wrapper = std::string(hook) == "fp16" ? "no" : "fp16"});
      }
    }
  }
}

struct Split {
  int ranks;
  std::int64_t micro_batch;
};

/// The weight's gradient of one global batch of 12 samples with 1 to 5 tokens each.
at::Tensor gradient_of(const Split& split, bool weighted) {
  at::Tensor gradient;
  run_accelerators(split.ranks,
                   [&](Accelerator& accelerator) {
                     auto model = make_model();
                     auto loader = make_loader(12, split.micro_batch);
                     auto [ddp, batches] = accelerator.prepare(model, loader);
                     for (auto& batch : batches) {
                       const auto step = accelerator.accumulate();
                       const at::Tensor tokens = batch["number"].remainder(5).add(1).to(torch::kFloat);
                       const at::Tensor losses = ddp(batch["x"]).squeeze(1).pow(2) * tokens;
                       if (weighted) {
                         accelerator.backward(losses.sum(), tokens.sum().item<double>());
                       } else {
                         accelerator.backward(losses.mean());
                       }
                     }
                     if (accelerator.is_main_process()) gradient = model->weight.grad().clone();
                   },
                   {.gradient_accumulation = {.global_batch_size = 12}});
  return gradient;
}

TEST(Gradients, DoNotDependOnHowABatchIsDivided) {
  for (const bool weighted : {true, false}) {
    const at::Tensor wanted = gradient_of({1, 12}, weighted);
    for (const Split split : {Split{1, 1}, Split{1, 4}, Split{2, 6}, Split{2, 3}, Split{3, 2}, Split{4, 1}}) {
      EXPECT_TRUE(torch::allclose(gradient_of(split, weighted), wanted, 1e-6, 0))
          << split.ranks << " x " << split.micro_batch << gradient_of(split, weighted) << wanted;
    }
  }
}

TEST(Gradients, OfNothingAreZero) {
  run_accelerators(2, [](Accelerator& accelerator) {
    auto model = make_model();
    auto ddp = accelerator.prepare(model);
    accelerator.backward(ddp(rows(2)).sum() * 0, 0);
    EXPECT_TRUE(torch::equal(model->weight.grad(), torch::zeros({1, 3})));
    accelerator.backward(ddp(rows(2)).sum(), accelerator.process_index() == 0 ? 2 : 0);
    EXPECT_TRUE(torch::allclose(model->weight.grad(), rows(2).sum(0, true)));
    EXPECT_THROWS(accelerator.backward(ddp(rows(2)).sum(), -1), UsageError, "0 or more");
  });
}

/// Like the embedding of an encoder-decoder, which has three names.
TEST(Gradients, ClipASharedParameterOnce) {
  run_accelerators(1, [](Accelerator& accelerator) {
    const at::Tensor shared = torch::zeros({4}, torch::requires_grad());
    const auto with_gradient = [&] {
      shared.mutable_grad() = torch::full({4}, 3.0);
      return std::vector<at::Tensor>{shared, shared, shared};
    };
    EXPECT_EQ(accelerator.clip_grad_norm_(with_gradient(), 2.0).item<double>(), 6.0);
    EXPECT_NEAR(shared.grad().norm().item<double>(), 2.0, 1e-5);
  });
}

/// torch.nn.utils.clip_grad_norm_ of such a gradient in bfloat16 with 0.7117.
TEST(Gradients, AreClippedWithPyTorchsBits) {
  run_accelerators(1, [](Accelerator& accelerator) {
    const at::Tensor weight = torch::zeros({3}, torch::requires_grad().dtype(torch::kBFloat16));
    weight.mutable_grad() = torch::tensor({-0.0225830078125F, -2.75F, -3.25F}, torch::kBFloat16);
    accelerator.clip_grad_norm_({weight}, 0.7117);
    EXPECT_TRUE(torch::equal(
        weight.grad(), torch::tensor({-0.0037994384765625F, -0.4609375F, -0.546875F}, torch::kBFloat16)));
  });
}

TEST(Gradients, RefuseWhatDoesNotFit) {
  run_accelerators(2,
                   [](Accelerator& accelerator) {
                     auto loader = make_loader(12, 5);
                     EXPECT_THROWS(accelerator.prepare(loader), UsageError, "12 samples",
                                   "2 ranks with batches of 5");
                   },
                   {.gradient_accumulation = {.global_batch_size = 12}});
  const auto made = [](const AcceleratorOptions& options) {
    run_accelerators(
        1, [](Accelerator&) {}, options);
  };
  EXPECT_THROWS(made({.mixed_precision = MixedPrecision::fp16}), UsageError, "CUDA", "bf16");
  EXPECT_THROWS(made({.gradient_accumulation_steps = 0}), UsageError, "at least 1");
  EXPECT_THROWS(made({.gradient_accumulation = {.weights_of_all_ranks = false, .sync_each_batch = true}}),
                UsageError, "weights_of_all_ranks");
  EXPECT_THROWS(made({.comm_hook = "fp8"}), UsageError, "'fp8'", "power_sgd");
  EXPECT_THROWS(made({.comm_hook = "fp16", .comm_wrapper = "bf16"}), UsageError, "PowerSGD");
}

TEST(Gradients, TravelByTheNamedHook) {
  for (const char* hook : {"fp16", "bf16", "power_sgd", "batched_power_sgd"}) {
    run_accelerators(2,
                     [](Accelerator& accelerator) {
                       auto model = make_model();
                       auto ddp = accelerator.prepare(model);
                       accelerator.backward(ddp(rows(4)).sum());
                       EXPECT_TRUE(torch::allclose(model->weight.grad(), rows(4).sum(0, true), 1e-2));
                     },
                     {.comm_hook = hook});
  }
}

TEST(Gradients, AreClippedAtTheEndOfAWindow) {
  run_accelerators(
      1,
      [](Accelerator& accelerator) {
        auto model = make_model();
        auto ddp = accelerator.prepare(model);
        for (int i = 0; i < 2; ++i) {
          const auto step = accelerator.accumulate();
          accelerator.backward(ddp(torch::tensor({{3.0, 0.0, 0.0}})).sum() + 0 * model->bias.sum());
          model->bias.mutable_grad() = torch::tensor({4.0F});
          const at::Tensor norm = accelerator.clip_grad_norm_(ddp, 1.0);
          // In the middle of the window it is the norm so far, of which nothing is clipped.
          EXPECT_NEAR(norm.item<double>(), i == 0 ? std::sqrt(1.5 * 1.5 + 16) : 5, 1e-6);
        }
        for (const double none : {0.0, -1.0, std::nan("")})
          EXPECT_THROWS(accelerator.clip_grad_norm_(ddp, none), UsageError, "max_norm", "above 0");
        const at::Tensor before = model->weight.grad().clone();
        EXPECT_NEAR(accelerator.clip_grad_norm_(ddp, std::numeric_limits<double>::infinity()).item<double>(),
                    1, 1e-5);
        EXPECT_TRUE(torch::equal(model->weight.grad(), before)) << "infinity only measures";
        EXPECT_NEAR(model->weight.grad().norm().item<double>(), 0.6, 1e-5);
        EXPECT_NEAR(accelerator.clip_grad_norm_(ddp.parameters(), 0.9).item<double>(), 1, 1e-5);
        EXPECT_NEAR(accelerator.clip_grad_norm_(ddp, 0.9).item<double>(), 0.9, 1e-5);
        accelerator.clip_grad_value_(ddp.parameters(), 0.5);
        EXPECT_NEAR(model->weight.grad().max().item<double>(), 0.5, 1e-6);
      },
      accumulating(2));
}

TEST(MixedPrecisionTest, ComputesInBfloat16AndReturnsFloat) {
  run_accelerators(2,
                   [](Accelerator& accelerator) {
                     auto model = make_model();
                     auto ddp = accelerator.prepare(model);
                     const at::Tensor x = torch::full({1, 3}, 1.0 / 3);
                     const at::Tensor output = ddp(x);
                     EXPECT_EQ(output.scalar_type(), torch::kFloat);
                     EXPECT_TRUE(torch::equal(output, output.to(torch::kBFloat16).to(torch::kFloat)));
                     EXPECT_EQ(torch::mm(x, x.t()).scalar_type(), torch::kFloat);
                     accelerator.backward(output.sum());
                     EXPECT_EQ(model->weight.grad().scalar_type(), torch::kFloat);
                     const auto cast = accelerator.autocast();
                     EXPECT_EQ(torch::mm(x, x.t()).scalar_type(), torch::kBFloat16);
                     const Autocast exact(torch::kCPU, MixedPrecision::no);
                     EXPECT_EQ(torch::mm(x, x.t()).scalar_type(), torch::kFloat);
                   },
                   {.mixed_precision = MixedPrecision::bf16});
}

/// Counted in optimizer steps: neither ranks nor micro-batches change it.
TEST_P(Worlds, SchedulesCountOptimizerSteps) {
  const TemporaryFolder folder;
  run_accelerators(
      GetParam(),
      [&](Accelerator& accelerator) {
        auto model = make_model();
        optim::AdamW adam(model->parameters(), {.lr = 0.5});
        optim::LrScheduler linear(adam, {.name = "linear", .num_training_steps = 8});
        auto [ddp, opt, scheduler] = accelerator.prepare(model, adam, linear);
        EXPECT_EQ(linear.last_lr(), std::vector<double>{0.5});
        for (int i = 0; i < 4; ++i) {
          const auto step = accelerator.accumulate();
          accelerator.backward(loss_of(ddp(rows(2))));
          opt.step();
          scheduler.step();
          opt.zero_grad();
        }
        EXPECT_EQ(linear.steps(), 2);
        EXPECT_EQ(scheduler.last_lr(), std::vector<double>{0.375});
        accelerator.save_state(folder / "saved");
        linear.step();
        EXPECT_NE(linear.last_lr(), std::vector<double>{0.375});
        accelerator.load_state(folder / "saved");
        EXPECT_EQ(linear.steps(), 2);
        EXPECT_EQ(adam.param_groups()[0].options().get_lr(), 0.375);
      },
      accumulating(2));
}

TEST(Schedulers, AreMissedInACheckpointWithoutThem) {
  const TemporaryFolder folder;
  run_accelerators(1, [&](Accelerator& accelerator) {
    auto model = make_model();
    optim::AdamW adam(model->parameters());
    const auto prepared = accelerator.prepare(model, adam);
    accelerator.save_state(folder / "saved");
    optim::LrScheduler constant(adam, {.name = "constant"});
    const auto scheduler = accelerator.prepare(constant);
    EXPECT_THROWS(accelerator.load_state(folder / "saved"), DataError, "fewer schedulers");
  });
}

}  // namespace
}  // namespace lockstep
