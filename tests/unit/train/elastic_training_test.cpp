// A training whose steps can be undone, and whose state any rank can give to the others.

#include "train/elastic/elastic_training.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "comm/backend/cpu_backend.hpp"
#include "lockstep/checkpoint/optimizer_state.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/optim/lr_scheduler.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/train/elastic.hpp"
#include "support/accelerators.hpp"
#include "support/throws.hpp"
#include "train/elastic/kept_state.hpp"
#include "unit/train/small_training.hpp"

namespace lockstep {
namespace {

using elastic::HeldState;
using testing::make_loader;
using testing::make_model;
using testing::run_accelerators;
using Kind = HeldState::Kind;

HeldState clean(std::uint64_t step) { return {.kind = Kind::clean, .step = step}; }
HeldState torn(std::uint64_t step) { return {.kind = Kind::torn, .step = step}; }

TEST(ChooseSource, TakesTheNewestCleanState) {
  EXPECT_EQ(train::choose_source({clean(3), clean(4), {}, clean(4)}), 1);
  EXPECT_EQ(train::choose_source({torn(3), clean(3)}), 1);
  EXPECT_EQ(train::choose_source({{}, torn(2), clean(3)}), 2);
}

TEST(ChooseSource, SaysWhatTheRanksHoldIfThereIsNone) {
  EXPECT_THROWS(train::choose_source({torn(3), {}}), Error, "no rank holds a whole state",
                "rank 0 is in the middle of the update of step 3, rank 1 has no state", "checkpoint");
  EXPECT_THROWS(train::choose_source({clean(3), clean(5)}), Error, "more than a step apart",
                "rank 0 is at step 3, rank 1 is at step 5");
}

/// Two steps; returns how many operations the group had.
template <class Commit>
std::uint64_t train_two_steps(Accelerator& accelerator, const Commit& make_commit) {
  auto model = make_model();
  torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.1));
  auto [ddp, opt, batches] = accelerator.prepare(model, sgd, make_loader(16, 2));
  const auto commit = make_commit();
  for (auto& batch : batches) {
    accelerator.backward(ddp(batch["x"]).sum());
    opt.step();
    opt.zero_grad();
    commit();
  }
  auto& group = *accelerator.process_group().c10d_process_group();
  return dynamic_cast<comm::CpuBackend&>(*group.getBackend(at::kCPU)).getSequenceNumberForGroup();
}

TEST(ElasticTraining, SendsNothingWhileNothingFails) {
  std::vector<std::uint64_t> operations(4);
  for (const bool elastic : {false, true}) {
    run_accelerators(2, [&](Accelerator& accelerator) {
      auto& count = operations[static_cast<std::size_t>(accelerator.process_index() + (elastic ? 2 : 0))];
      std::optional<train::ElasticTraining> training;
      count = train_two_steps(accelerator, [&] {
        if (elastic) training.emplace(accelerator, 1).begin();
        return [&] {
          if (training) training->commit();
        };
      });
      if (training) {
        EXPECT_EQ(training->step(), 4U);
      }
    });
  }
  EXPECT_GT(operations[0], 4U);
  EXPECT_EQ(operations[0], operations[2]);
  EXPECT_EQ(operations[1], operations[3]);
}

TEST(KeptState, PutsBuffersAndPositionsBack) {
  const at::Tensor buffer = at::arange(3);
  DataLoader loader = make_loader(8, 2);
  train::KeptState kept({.buffers = {buffer}, .loaders = {loader.position_handle()}});
  loader.skip_batches(1);
  kept.keep();
  buffer.add_(5);
  loader.skip_batches(2);
  kept.restore();
  EXPECT_TRUE(at::equal(buffer, at::arange(3)));
  EXPECT_EQ(loader.position(), 1);
}

/// What is done once in an epoch is between a commit and the next optimizer step, and is done again.
TEST(KeptState, PutsSchedulesAndLearningRatesBack) {
  auto model = make_model();
  optim::SGD sgd(model->parameters(), {.lr = 1});
  optim::LrScheduler scheduler(sgd, [](std::int64_t step) { return 1.0 / static_cast<double>(step + 1); });
  train::KeptState kept({.schedulers = {&scheduler}, .optimizers = {&sgd}});
  scheduler.step();
  kept.keep();
  scheduler.step();
  EXPECT_EQ(scheduler.last_lr(), std::vector{1.0 / 3});
  kept.restore();
  EXPECT_EQ(scheduler.last_lr(), std::vector{0.5});
  EXPECT_EQ(scheduler.steps(), 1);
  sgd.param_groups().front().options().set_lr(7);
  kept.restore();
  EXPECT_EQ(scheduler.last_lr(), std::vector{0.5});
}

/// The same count as with recoveries: a loop may end by it.
TEST(ElasticState, CountsStepsWithoutRecoveries) {
  run_accelerators(1, [](Accelerator& accelerator) {
    auto model = make_model();
    optim::SGD sgd(model->parameters(), {.lr = 0.1});
    auto [ddp, opt, batches] = accelerator.prepare(model, sgd, make_loader(16, 2));
    const auto steps =
        run_elastic(accelerator, [&, &ddp = ddp, &opt = opt, &batches = batches](ElasticState& state) {
          state.commit();
          EXPECT_EQ(state.step(), 0U) << "no optimizer has stepped";
          for (auto& batch : batches) {
            accelerator.backward(ddp(batch["x"]).sum());
            opt.step();
            state.commit();
            state.commit();
          }
          return state.step();
        });
    EXPECT_EQ(steps, 8U);
  });
}

TEST(ElasticState, CountsTheStepsOfAPlainLoop) {
  run_accelerators(2, [](Accelerator& accelerator) {
    auto model = make_model();
    DistributedDataParallel ddp(model, accelerator.process_group());
    torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1));
    ElasticState state(accelerator.world(), accelerator.process_group());
    state.add(ddp);
    state.add(optimizer);
    state.resume_at(5);
    EXPECT_THROWS(state.commit(), UsageError, "belongs into the body");
    auto batches = make_loader(16, 2);
    const std::uint64_t steps = run_elastic(state, [&] {
      int micro_batches = 0;
      for (auto& batch : batches) {
        ddp(batch["x"]).sum().backward();
        if (++micro_batches % 2 == 0) optimizer.step();
        state.commit();
      }
      return state.step();
    });
    EXPECT_EQ(steps, 5U + 4U);
    EXPECT_THROWS(state.commit(), UsageError, "belongs into the body");
  });
}

TEST(ElasticState, TakesFromAnAcceleratorWhatThatHasPrepared) {
  run_accelerators(1, [](Accelerator& accelerator) {
    auto model = make_model();
    optim::SGD sgd(model->parameters(), {.lr = 0.1});
    ElasticState state(accelerator);
    EXPECT_THROWS(state.add(sgd), UsageError, "an optimizer", "accelerator.prepare()");
  });
}

/// Rank 1 alone has the newer state.
TEST(ElasticTraining, GivesTheNewerStateToTheRankThatIsBehind) {
  run_accelerators(2, [](Accelerator& accelerator) {
    auto model = make_model();
    torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    auto [ddp, opt, batches] = accelerator.prepare(model, sgd, make_loader(16, 2));
    train::ElasticTraining training(accelerator, 1);
    training.begin();
    accelerator.backward(ddp(at::ones({1, 3})).sum());
    if (accelerator.process_index() == 1) {
      opt.step();
      training.commit();
    }
    training.recover();
    EXPECT_EQ(training.step(), 1U);
    EXPECT_FALSE(model->weight.grad().defined());
    const auto weights = accelerator.gather(model->weight.detach().view({1, 3}));
    EXPECT_TRUE(at::equal(weights[0], weights[1]));
    EXPECT_FALSE(at::equal(weights[0], make_model()->weight.detach()[0]));
    const auto state = optimizer_state(sgd, {{"weight", model->weight}, {"bias", model->bias}});
    const auto momenta = accelerator.gather(state.tensors.at("state.weight.momentum_buffer").view({1, 3}));
    EXPECT_TRUE(at::equal(momenta[0], momenta[1]));
    EXPECT_GT(momenta[0].abs().sum().item<double>(), 0);
  });
}

/// The state is torn on all ranks: nothing can be given, and all say so.
TEST(ElasticTraining, FailsOnAllRanksIfNoneHasAWholeState) {
  run_accelerators(2, [](Accelerator& accelerator) {
    auto model = make_model();
    torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.1));
    auto [ddp, opt] = accelerator.prepare(model, sgd);
    train::ElasticTraining training(accelerator, 1);
    training.begin();
    accelerator.backward(ddp(at::ones({1, 3})).sum());
    opt.step();
    EXPECT_THROWS(training.recover(), Error, "no rank holds a whole state");
  });
}

}  // namespace
}  // namespace lockstep
