#include <gtest/gtest.h>
#include <torch/nn.h>

#include <chrono>
#include <thread>

#include "lockstep/core/error.hpp"
#include "lockstep/parallel/comm_hooks.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "support/ranks.hpp"

namespace lockstep {
namespace {

using testing::run_group;
using Options = DistributedDataParallelOptions;

constexpr int kEnough = 8;  // Steps after which the sizes are settled.

/// Numbers of no pattern: the threads that are ranks share one generator of random ones.
at::Tensor numbers(at::IntArrayRef sizes, double seed) {
  return (torch::arange(c10::multiply_integers(sizes), torch::kFloat) * 1.7 + seed).sin().view(sizes);
}

/// Backward rests for a while between the gradients of `late` and of `early`.
struct RestingImpl : torch::nn::Module {
  RestingImpl(int width, int milliseconds) : rest(milliseconds) {
    early = register_module("early", torch::nn::Linear(width, width));
    late = register_module("late", torch::nn::Sequential(torch::nn::Linear(width, width), torch::nn::Tanh(),
                                                         torch::nn::Linear(width, width)));
    const torch::NoGradGuard no_grad;
    for (auto& parameter : parameters()) parameter.copy_(numbers(parameter.sizes(), 0.5));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor middle = early(x).tanh();
    if (middle.requires_grad()) {
      middle.register_hook(
          [rest = rest](const at::Tensor&) { std::this_thread::sleep_for(std::chrono::milliseconds(rest)); });
    }
    return late->forward(middle);
  }
  int rest;
  torch::nn::Linear early{nullptr};
  torch::nn::Sequential late{nullptr};
};
TORCH_MODULE(Resting);

at::Tensor input_of(const ProcessGroup& group, int step, int width) {
  return numbers({4, width}, 100 * step + group.rank());
}

/// The gradients after each step.
std::vector<at::Tensor> train(const ProcessGroup& group, const Options& options, int steps,
                              DdpStatistics& end) {
  constexpr int kWidth = 96;  // Past what shared memory adds up in one step.
  Resting net(kWidth, 2);
  DistributedDataParallel ddp(net, group, options);
  std::vector<at::Tensor> gradients;
  for (int step = 0; step < steps; ++step) {
    ddp.zero_grad(step % 2 == 0);
    ddp(input_of(group, step, kWidth)).square().sum().backward();
    for (const auto& entry : ddp.parameters()) gradients.push_back(entry.tensor.grad().clone());
  }
  end = ddp.statistics();
  return gradients;
}

void expect_equal(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(found[i].equal(wanted[i])) << i;
}

bool is_measured(const ProcessGroup& group, const Options& options) {
  DdpStatistics end;
  train(group, options, kEnough, end);
  return end.buckets_measured;
}

TEST(BucketSizes, MeasuredOnesLeaveTheBitsOfGradientsAsTheyAre) {
  for (const int ranks : {2, 3}) {
    for (const bool view : {false, true}) {
      run_group(ranks, [&](const ProcessGroup& group) {
        Options options{.gradient_as_bucket_view = view};
        DdpStatistics measured, fixed;
        const auto found = train(group, options, kEnough, measured);
        options.bucket_sizes = BucketSizes::fixed;
        const auto wanted = train(group, options, kEnough, fixed);
        EXPECT_TRUE(measured.buckets_measured);
        EXPECT_FALSE(fixed.buckets_measured);
        expect_equal(found, wanted);
      });
    }
  }
}

/// 4 MiB each: the two layers that are ready first do not wait for the third.
TEST(BucketSizes, FollowTheTimesOfBackward) {
  run_group(2, [&](const ProcessGroup& group) {
    constexpr int kWidth = 1024;
    Resting net(kWidth, 40);
    DistributedDataParallel ddp(net, group);
    for (int step = 0; step < kEnough; ++step) {
      ddp(input_of(group, step, kWidth)).sum().backward();
      ddp.zero_grad();
    }
    const BucketLayout layout = ddp.bucket_layout();
    EXPECT_GT(layout.size(), 1U);
    // Registered first: the weight and bias of `early`.
    for (const auto index : layout.back()) EXPECT_LT(index, 2U);
    std::int64_t bytes = 0;
    for (const auto size : ddp.statistics().bucket_bytes) bytes += size;
    EXPECT_EQ(bytes, 3 * 4 * (kWidth * kWidth + kWidth));
  });
}

TEST(BucketSizes, AreMeasuredOnlyWhereThatChangesNothing) {
  run_group(3, [&](const ProcessGroup& shared) {
    EXPECT_TRUE(is_measured(shared, {}));
    EXPECT_FALSE(is_measured(shared, {.bucket_cap_mb = 1}));
    EXPECT_FALSE(is_measured(shared, {.find_unused_parameters = true}));
    EXPECT_FALSE(is_measured(shared, {.static_graph = true}));
    EXPECT_TRUE(is_measured(shared, {.bucket_cap_mb = 1, .bucket_sizes = BucketSizes::measured}));
  });
  for (const int ranks : {2, 3}) {
    const Store store = Store::in_memory();
    testing::run_ranks(ranks, [&](int rank) {
      const ProcessGroup gloo(rank, ranks, store, {.backend = CommBackend::gloo});
      EXPECT_EQ(is_measured(gloo, {}), ranks == 2);
      EXPECT_TRUE(is_measured(gloo, {.bucket_sizes = BucketSizes::measured}));
    });
  }
}

template <class Ddp>
void train_once(Ddp& ddp) {
  ddp.zero_grad();
  ddp(torch::ones({2, 4})).sum().backward();
}

/// From the beginning, or while times are taken.
TEST(BucketSizes, StayAsTheyAreWithAHook) {
  run_group(2, [&](const ProcessGroup& group) {
    for (const int steps_before : {0, 3}) {
      torch::nn::Linear net(4, 4);
      DistributedDataParallel ddp(net, group);
      for (int i = 0; i < steps_before; ++i) train_once(ddp);
      ddp.register_comm_hook(std::make_shared<AllReduceHook>());
      for (int i = 0; i < kEnough; ++i) train_once(ddp);
      EXPECT_FALSE(ddp.statistics().buckets_measured);
    }
  });
}

TEST(BucketSizes, MayBeLeftWhileTheyAreMeasured) {
  run_group(2, [&](const ProcessGroup& group) {
    torch::nn::Linear net(4, 4);
    for (int i = 0; i < 2; ++i) {
      DistributedDataParallel ddp(net, group);
      for (int j = 0; j < 3; ++j) train_once(ddp);
    }
    net->zero_grad();
    net(torch::ones({2, 4})).sum().backward();
    EXPECT_TRUE(net->bias.grad().equal(torch::full({4}, 2.F)));
  });
}

struct ShortenedImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return is_short ? first(x) : second(first(x)); }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(4, 4));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(4, 4));
  bool is_short = false;
};
TORCH_MODULE(Shortened);

/// In whichever step: the one in which buckets are cut must not hide it.
TEST(BucketSizes, LeaveAParameterWithoutAGradientAnError) {
  run_group(2, [&](const ProcessGroup& group) {
    for (int bad = 0; bad < kEnough; ++bad) {
      Shortened net;
      DistributedDataParallel ddp(net, group);
      for (int i = 0; i < bad; ++i) train_once(ddp);
      net->is_short = true;
      train_once(ddp);
      EXPECT_THROW(ddp(torch::ones({2, 4})), Error) << bad;
    }
  });
}

TEST(BucketSizes, StayAsTheyAreWhenAParameterIsFrozen) {
  run_group(2, [&](const ProcessGroup& group) {
    for (const int steps_before : {1, 3}) {
      torch::nn::Linear net(4, 4);
      DistributedDataParallel ddp(net, group);
      for (int i = 0; i < steps_before; ++i) train_once(ddp);
      net->weight.requires_grad_(false);
      train_once(ddp);
      EXPECT_THROW(train_once(ddp), Error);
    }
  });
}

/// Gradients that wait, and ranks with different numbers of batches, while times are taken.
std::vector<at::Tensor> train_unevenly(const ProcessGroup& group, const Options& options,
                                       DdpStatistics& end) {
  Resting net(4, 0);
  DistributedDataParallel ddp(net, group, options);
  const auto add = [&](int value) { ddp(numbers({2, 4}, value + group.rank())).sum().backward(); };
  std::vector<at::Tensor> gradients;
  for (int round = 0; round < kEnough; ++round) {
    ddp.zero_grad();
    {
      const auto alone = ddp.no_sync();
      add(round);
    }
    if (round == 3) {
      ddp.join([&] {
        for (int i = 0; i < 1 + group.rank(); ++i) add(i);
      });
    }
    add(10 * round);
    gradients.push_back(net->early->weight.grad().clone());
  }
  end = ddp.statistics();
  return gradients;
}

TEST(BucketSizes, AreMeasuredBesideAccumulationAndJoin) {
  for (const bool view : {false, true}) {
    run_group(3, [&](const ProcessGroup& group) {
      Options options{.gradient_as_bucket_view = view};
      DdpStatistics measured, fixed;
      const auto found = train_unevenly(group, options, measured);
      options.bucket_sizes = BucketSizes::fixed;
      expect_equal(found, train_unevenly(group, options, fixed));
      EXPECT_TRUE(measured.buckets_measured);
    });
  }
}

/// Where sums depend on the buckets, a layout that was saved is the one that counts.
TEST(BucketSizes, OfACheckpointAreKeptWhereTheyMatter) {
  const Store store = Store::in_memory();
  testing::run_ranks(3, [&](int rank) {
    const ProcessGroup gloo(rank, 3, store, {.backend = CommBackend::gloo});
    torch::nn::Sequential net(torch::nn::Linear(4, 4), torch::nn::Linear(4, 4));
    DistributedDataParallel ddp(net, gloo, {.bucket_sizes = BucketSizes::measured});
    const BucketLayout saved{{0, 3}, {2}, {1}};
    for (const int steps_before : {0, kEnough}) {
      for (int i = 0; i < steps_before; ++i) train_once(ddp);
      ddp.set_bucket_layout(saved);
      for (int i = 0; i < kEnough; ++i) train_once(ddp);
      EXPECT_EQ(ddp.bucket_layout(), saved);
      EXPECT_FALSE(ddp.statistics().buckets_measured);
    }
  });
}

TEST(BucketSizes, AreMeasuredAgainAfterACheckpointWhereTheyDoNotMatter) {
  run_group(2, [&](const ProcessGroup& group) {
    torch::nn::Linear net(4, 4);
    DistributedDataParallel ddp(net, group);
    for (int i = 0; i < kEnough; ++i) train_once(ddp);
    EXPECT_TRUE(ddp.statistics().buckets_measured);
    ddp.set_bucket_layout({{0}, {1}});
    EXPECT_FALSE(ddp.statistics().buckets_measured);
    for (int i = 0; i < kEnough; ++i) train_once(ddp);
    EXPECT_TRUE(ddp.statistics().buckets_measured);
  });
}

}  // namespace
}  // namespace lockstep
