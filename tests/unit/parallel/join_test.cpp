#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/core/error.hpp"
#include "lockstep/parallel/comm_hooks.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "lockstep/parallel/power_sgd.hpp"
#include "support/ranks.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using testing::run_group;

/// Rank r trains 2 + 3 r steps; afterwards all ranks have the same weights.
template <class Prepare>
void expect_agreement(int size, const DistributedDataParallelOptions& options, const Prepare& prepare) {
  run_group(size, [&](const ProcessGroup& group) {
    torch::nn::Sequential net(torch::nn::Linear(16, 16), torch::nn::Linear(16, 2));
    DistributedDataParallel ddp(net, group, options);
    prepare(ddp);
    ddp.join([&] {
      for (int step = 0; step < 2 + 3 * group.rank(); ++step) {
        ddp.zero_grad();
        ddp(torch::randn({4, 16})).square().sum().backward();
        const at::NoGradGuard no_grad;
        for (auto& parameter : net->parameters()) parameter.sub_(parameter.grad(), 0.01);
      }
    });
    for (const auto& parameter : net->parameters()) {
      const auto everywhere = group.all_gather(parameter.detach());
      for (const auto& other : everywhere) EXPECT_TRUE(torch::equal(other, everywhere.front()));
    }
    EXPECT_EQ(ddp.statistics().steps > 0, size > 1);
  });
}

TEST(Join, AllRanksEndWithTheSameWeights) {
  const auto nothing = [](auto&) {};
  for (const int size : {1, 2, 3}) expect_agreement(size, {}, nothing);
  expect_agreement(2, {.find_unused_parameters = true}, nothing);
  expect_agreement(2, {.non_finite_gradients = NonFiniteGradients::error}, nothing);
}

TEST(Join, HooksAreShadowedToo) {
  expect_agreement(3, {.bucket_cap_mb = 1e-4},
                   [](auto& ddp) { ddp.register_comm_hook(std::make_shared<CompressHook>(at::kHalf)); });
  expect_agreement(2, {.bucket_cap_mb = 1e-4}, [](auto& ddp) {
    ddp.register_comm_hook(std::make_shared<PowerSgdHook>(PowerSgdOptions{.start_iteration = 3}));
  });
}

TEST(Join, AccumulationInsideIsFollowed) {
  run_group(2, [&](const ProcessGroup& group) {
    torch::nn::Linear net(torch::nn::LinearOptions(2, 1).bias(false));
    DistributedDataParallel ddp(net, group);
    ddp.join([&] {
      for (int step = 0; step < (group.rank() == 0 ? 1 : 3); ++step) {
        ddp.zero_grad();
        {
          const auto alone = ddp.no_sync();
          ddp(torch::ones({1, 2})).sum().backward();
        }
        ddp(torch::ones({1, 2})).sum().backward();
        const float expected = group.rank() == 0 || step == 0 ? 2 : 1;  // The mean of 2 and of nothing is 1.
        EXPECT_TRUE((net->weight.grad() == expected).all().item<bool>()) << "step " << step;
      }
    });
  });
}

/// As an Accelerator does with 2 and 1 batches: the last one of a rank ends its window.
TEST(Join, WindowsThatEndWithDifferentBatchesAreAnErrorOnEveryRank) {
  run_group(3, [&](const ProcessGroup& group) {
    torch::nn::Linear net(2, 1);
    DistributedDataParallel ddp(net, group);
    const auto batches = [&] {
      if (group.rank() == 2) return;
      if (group.rank() == 0) {
        const auto alone = ddp.no_sync();
        ddp(torch::ones({1, 2})).sum().backward();
      }
      ddp(torch::ones({1, 2})).sum().backward();
    };
    EXPECT_THROWS(ddp.join(batches), UsageError, "synchronize the gradients of their batch: 1,",
                  "accumulate theirs without: 0.");
  });
}

TEST(Join, EarlyTerminationIsAnErrorOnEveryRankWhereAskedFor) {
  run_group(3, [&](const ProcessGroup& group) {
    torch::nn::Linear net(2, 1);
    DistributedDataParallel ddp(net, group);
    const auto batches = [&] {
      for (int step = 0; step < (group.rank() == 1 ? 1 : 3); ++step)
        ddp(torch::ones({1, 2})).sum().backward();
    };
    EXPECT_THROWS(ddp.join(batches, {.throw_on_early_termination = true}), Error,
                  "rank " + std::to_string(group.rank()) + " of 3",
                  "have no more batches while others have: 1");
  });
}

TEST(Join, EveryRankNeedsABatchForTheFirstBackwardOfAStaticGraph) {
  run_group(2, [&](const ProcessGroup& group) {
    torch::nn::Linear net(2, 1);
    DistributedDataParallel ddp(net, group, {.static_graph = true});
    const auto train = [&](int batches) {
      ddp.join([&] {
        for (int step = 0; step < batches; ++step) ddp(torch::ones({1, 2})).sum().backward();
      });
    };
    EXPECT_THROWS(train(2 * group.rank()), Error, "have no more batches while others have: 0",
                  "static_graph");
    train(1 + 2 * group.rank());
    train(2 * group.rank());
  });
}

TEST(Join, AnExceptionOfTheBodyPasses) {
  run_group(2, [&](const ProcessGroup& group) {
    torch::nn::Linear net(2, 1);
    DistributedDataParallel ddp(net, group);
    EXPECT_THROWS(ddp.join([] { throw DataError("no file"); }), DataError, "no file");
    ddp(torch::ones({1, 2})).sum().backward();  // The wrapper still works.
  });
}

}  // namespace
}  // namespace lockstep
