#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include "lockstep/core/error.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "support/ranks.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using testing::run_group;

constexpr int kSteps = 6;  // Buckets are rebuilt after the first.

template <class Ddp>
void train_once(Ddp& ddp) {
  ddp.zero_grad();
  ddp(torch::ones({2, 4})).sum().backward();
}

TEST(BucketLayout, EndsWithItsWrapper) {
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

/// In any step: the step that rebuilds buckets must not hide it.
TEST(BucketLayout, LeavesAParameterWithoutAGradientAnError) {
  run_group(2, [&](const ProcessGroup& group) {
    for (int bad = 0; bad < kSteps; ++bad) {
      Shortened net;
      DistributedDataParallel ddp(net, group);
      for (int i = 0; i < bad; ++i) train_once(ddp);
      net->is_short = true;
      train_once(ddp);
      EXPECT_THROW(ddp(torch::ones({2, 4})), Error) << bad;
    }
  });
}

TEST(BucketLayout, LeavesAFrozenParameterAnError) {
  run_group(2, [&](const ProcessGroup& group) {
    for (const int steps_before : {1, 3}) {
      torch::nn::Linear net(4, 4);
      DistributedDataParallel ddp(net, group);
      for (int i = 0; i < steps_before; ++i) train_once(ddp);
      net->weight.requires_grad_(false);
      EXPECT_THROW(train_once(ddp), Error);
    }
  });
}

/// Gloo verifies them by default.
TEST(BucketLayout, ThatDiffersBetweenRanksIsAnErrorOverGlooToo) {
  const Store store = Store::in_memory();
  testing::run_ranks(2, [&](int rank) {
    const ProcessGroup gloo(rank, 2, store,
                            {.backend = CommBackend::gloo, .timeout = std::chrono::seconds(30)});
    torch::nn::Linear net(4, 4);
    DistributedDataParallel ddp(net, gloo, {.find_unused_parameters = true});
    ddp.set_bucket_layout(rank == 0 ? BucketLayout{{1, 0}} : BucketLayout{{1}, {0}});
    const auto text = testing::message_of<CommunicationError>([&] { train_once(ddp); });
    EXPECT_TRUE(
        testing::contains_all(text, {"rank 0 called all_reduce", "rank 1 called all_reduce", "bucket 0"}));
  });
}

/// If sums depend on the buckets, backward after loading a checkpoint uses the saved buckets.
TEST(BucketLayout, OfACheckpointIsThatOfTheNextBackward) {
  const Store store = Store::in_memory();
  testing::run_ranks(3, [&](int rank) {
    const ProcessGroup gloo(rank, 3, store, {.backend = CommBackend::gloo});
    torch::nn::Sequential net(torch::nn::Linear(4, 4), torch::nn::Linear(4, 4));
    DistributedDataParallel ddp(net, gloo);
    for (const int steps_before : {0, kSteps}) {
      for (int i = 0; i < steps_before; ++i) train_once(ddp);
      const BucketLayout settled = ddp.bucket_layout();
      ddp.set_bucket_layout({{0, 3}, {2}, {1}});
      train_once(ddp);
      EXPECT_EQ(ddp.statistics().bucket_bytes, (std::vector<std::int64_t>{80, 64, 16}));
      train_once(ddp);
      if (steps_before > 0) {
        EXPECT_EQ(ddp.bucket_layout(), settled);
      }
    }
    EXPECT_THROW(ddp.set_bucket_layout({{0, 3}, {2}}), UsageError);
  });
}

}  // namespace
}  // namespace lockstep
