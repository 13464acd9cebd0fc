#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/core/error.hpp"
#include "lockstep/parallel/comm_hooks.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "lockstep/parallel/local_sgd.hpp"
#include "lockstep/parallel/power_sgd.hpp"
#include "support/ranks.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using testing::message_of;
using testing::run_group;

/// Sums without dividing, and keeps a record.
struct SumHook : CommHook {
  std::string name() const override { return "sum"; }
  FinishBucket start(const GradientBucket& bucket, const ProcessGroup& group) override {
    record += bucket.is_last ? "L" : "s";
    EXPECT_EQ(bucket.gradients.size(), bucket.parameters.size());
    EXPECT_TRUE(bucket.gradients.front().is_alias_of(bucket.buffer));
    return [this, buffer = bucket.buffer, work = group.all_reduce_async(bucket.buffer)]() mutable {
      work.wait();
      record += "f";
      return buffer.clone();
    };
  }
  void buckets_changed() override { record += "c"; }
  std::string record;
};

at::Tensor rows(int rank) { return torch::full({2, 6}, rank + 1.0); }

TEST(CommHook, OnesOwnSeesEveryBucketInOrder) {
  run_group(2, [&](const ProcessGroup& group) {
    torch::nn::Sequential net(torch::nn::Linear(6, 6), torch::nn::Linear(6, 1));
    DistributedDataParallel ddp(net, group, {.bucket_cap_mb = 1e-6});
    const auto hook = std::make_shared<SumHook>();
    ddp.register_comm_hook(hook);
    for (int step = 0; step < 3; ++step) {
      ddp.zero_grad();
      ddp(rows(group.rank())).sum().backward();
    }
    EXPECT_EQ(hook->record,
              "Lfc"
              "sssLffffsssLffff");
    EXPECT_TRUE((net->parameters().back().grad() == 4).all().item<bool>());  // 2 rows on each of 2 ranks.
  });
}

/// Buckets have one dtype, and the reducer sends all of them at once at the end of the first backward.
TEST(CommHook, SeesEveryBucketOfAStaticGraph) {
  struct Mixed : torch::nn::Module {
    torch::nn::Linear one = register_module("one", torch::nn::Linear(6, 1));
    at::Tensor two = register_parameter("two", torch::ones({6, 1}, at::kDouble));
    at::Tensor forward(const at::Tensor& input) { return one(input) + input.to(at::kDouble).mm(two); }
  };
  run_group(2, [&](const ProcessGroup& group) {
    const auto net = std::make_shared<Mixed>();
    DistributedDataParallel ddp(net, group,
                                {.static_graph = true, .non_finite_gradients = NonFiniteGradients::error});
    const auto hook = std::make_shared<SumHook>();
    ddp.register_comm_hook(hook);
    for (int step = 0; step < 2; ++step) {
      ddp.zero_grad();
      ddp(rows(group.rank())).sum().backward();
      for (const auto& parameter : {net->one->weight, net->two})
        EXPECT_TRUE((parameter.grad() == 6).all().item<bool>());  // 2 rows of 1, and 2 rows of 2.
    }
    EXPECT_EQ(hook->record, "sLffsLff");
    EXPECT_THROWS(ddp(rows(group.rank()) / (1 - group.rank())).sum().backward(), Error, "on rank 1");
  });
}

/// The same name on all ranks, but a different operation on each.
struct OddHook : CommHook {
  std::string name() const override { return "odd"; }
  FinishBucket start(const GradientBucket& bucket, const ProcessGroup& group) override {
    const auto op = group.rank() == 0 ? ReduceOp::max : ReduceOp::min;
    return [buffer = bucket.buffer, work = group.all_reduce_async(bucket.buffer, op)]() mutable {
      work.wait();
      return buffer;
    };
  }
};

/// Gloo verifies buckets by default: otherwise each rank would have different gradients.
TEST(CommHook, ThatDiffersBetweenRanksIsAnErrorOverGlooToo) {
  const Store store = Store::in_memory();
  testing::run_ranks(2, [&](int rank) {
    const ProcessGroup gloo(rank, 2, store,
                            {.backend = CommBackend::gloo, .timeout = std::chrono::seconds(30)});
    torch::nn::Linear net(6, 1);
    DistributedDataParallel ddp(net, gloo);
    ddp.register_comm_hook(std::make_shared<OddHook>());
    const auto text = message_of<CommunicationError>([&] { ddp(rows(rank)).sum().backward(); });
    EXPECT_TRUE(testing::contains_all(text, {"max, bucket 0", "min, bucket 0"}));
  });
}

TEST(CommHook, AnotherOneReplacesIt) {
  run_group(2, [&](const ProcessGroup& group) {
    torch::nn::Linear net(6, 1);
    DistributedDataParallel ddp(net, group, {.gradient_as_bucket_view = true});
    ddp.register_comm_hook(std::make_shared<SumHook>());
    ddp(rows(group.rank())).sum().backward();
    EXPECT_TRUE((net->weight.grad() == 6).all().item<bool>());
    ddp.zero_grad();
    ddp.register_comm_hook(std::make_shared<AllReduceHook>());
    ddp(rows(group.rank())).sum().backward();
    EXPECT_TRUE((net->weight.grad() == 3).all().item<bool>());
  });
}

TEST(CommHook, ItsExceptionsAreThrownByBackward) {
  struct Refusing : SumHook {
    FinishBucket start(const GradientBucket&, const ProcessGroup&) override { throw DataError("no"); }
  };
  struct Shrinking : SumHook {
    FinishBucket start(const GradientBucket& bucket, const ProcessGroup&) override {
      return [bucket] { return bucket.buffer.narrow(0, 0, 1); };
    }
  };
  run_group(2, [&](const ProcessGroup& group) {
    torch::nn::Linear net(6, 1), other(6, 1);
    DistributedDataParallel ddp(net, group), second(other, group);
    ddp.register_comm_hook(std::make_shared<Refusing>());
    EXPECT_THROWS(ddp(rows(0)).sum().backward(), DataError, "no");
    second.register_comm_hook(std::make_shared<Shrinking>());
    EXPECT_THROWS(second(rows(0)).sum().backward(), UsageError, "expected 7 gradients back for bucket 0",
                  "but got 1 on cpu");
  });
}

TEST(CommHook, EveryRankMustRegisterTheSame) {
  run_group(2, [&](const ProcessGroup& group) {
    torch::nn::Linear net(6, 1);
    DistributedDataParallel ddp(net, group);
    const auto type = group.rank() == 0 ? at::kHalf : at::kBFloat16;
    EXPECT_THROWS(ddp.register_comm_hook(std::make_shared<CompressHook>(type)), CommunicationError,
                  "rank 0 has 'compress to Half'; rank 1 has 'compress to BFloat16'");
    EXPECT_THROWS(ddp.register_comm_hook(nullptr), UsageError, "expected a hook");
  });
}

TEST(CommHook, WrongOptionsAreRefused) {
  EXPECT_THROWS(CompressHook(at::kFloat), UsageError, "expected Half or BFloat16", "but got Float");
  EXPECT_THROWS(PowerSgdHook({.start_iteration = 1}), UsageError, "start_iteration must be more than 1");
  EXPECT_THROWS(PowerSgdHook({.matrix_approximation_rank = 0}), UsageError, "must be at least 1");
  EXPECT_THROWS(QuantizationHook({.channel = -1}), UsageError, "channel must be 0");
}

/// A bucket of four gradients is a matrix of two columns.
TEST(BatchedPowerSgdHook, TakesBucketsWithFewerColumnsThanItsRank) {
  run_group(2, [&](const ProcessGroup& group) {
    torch::nn::Linear net(torch::nn::LinearOptions(4, 1).bias(false));
    DistributedDataParallel ddp(net, group);
    ddp.register_comm_hook(std::make_shared<BatchedPowerSgdHook>(
        PowerSgdOptions{.matrix_approximation_rank = 4, .start_iteration = 2}));
    const at::Tensor row = torch::tensor({{1.0F, 2.0F, 3.0F, 5.0F}});
    for (int step = 0; step < 4; ++step) {
      ddp.zero_grad();
      ddp(row * (step + group.rank() + 1)).sum().backward();
    }
    EXPECT_TRUE(torch::allclose(net->weight.grad(), row * 4.5, 1e-4));
  });
}

TEST(PowerSgdHook, CountsWhatItSpares) {
  run_group(2, [&](const ProcessGroup& group) {
    torch::nn::Linear net(32, 32);
    DistributedDataParallel ddp(net, group);
    const auto hook = std::make_shared<PowerSgdHook>(PowerSgdOptions{.start_iteration = 2});
    ddp.register_comm_hook(hook);
    for (int step = 0; step < 3; ++step) ddp(torch::randn({4, 32})).square().sum().backward();
    EXPECT_EQ(hook->statistics().before, 32 * 32 + 32);
    EXPECT_EQ(hook->statistics().after, 32 + 32 + 32);
    EXPECT_DOUBLE_EQ(hook->statistics().rate(), 11.0);
  });
}

TEST(PostLocalSgd, SubgroupsAverageWithinThemselves) {
  run_group(4, [&](const ProcessGroup& group) {
    auto low = group.new_group({0, 1}), high = group.new_group({2, 3});
    torch::nn::Linear net(torch::nn::LinearOptions(6, 1).bias(false));
    DistributedDataParallel ddp(net, group);
    ddp.register_comm_hook(std::make_shared<PostLocalSgdHook>(
        PostLocalSgdOptions{.start_iteration = 1, .subgroup = low ? low : high}));
    ddp(rows(group.rank())).sum().backward();
    EXPECT_TRUE((net->weight.grad() == 5).all().item<bool>());  // 2 rows of 1, 2, 3 and 4.
    ddp.zero_grad();
    ddp(rows(group.rank())).sum().backward();
    EXPECT_TRUE((net->weight.grad() == (group.rank() < 2 ? 3 : 7)).all().item<bool>());
  });
}

/// As after a checkpoint: the second pair goes on where the first one was.
TEST(PostLocalSgd, ResumesWhereItStopped) {
  run_group(2, [&](const ProcessGroup& group) {
    std::vector<double> weights, others;
    PeriodicModelAverager averager(group, {.period = 3, .warmup_steps = 1});
    const auto run = [&](PeriodicModelAverager& one, int steps, std::vector<double>& seen) {
      for (int i = 0; i < steps; ++i) {
        const at::Tensor weight = at::full({1}, static_cast<double>(group.rank())).requires_grad_();
        weight.mutable_grad() = at::zeros({1});
        one.average_parameters({weight});
        seen.push_back(weight.item<double>());
      }
    };
    run(averager, 8, weights);
    PeriodicModelAverager first(group, {.period = 3, .warmup_steps = 1});
    run(first, 3, others);
    PeriodicModelAverager second(group, {.period = 3, .warmup_steps = 1});
    second.set_step(first.step());
    run(second, 5, others);
    EXPECT_EQ(others, weights);
    EXPECT_EQ(second.step(), 8);
    torch::nn::Linear net(torch::nn::LinearOptions(6, 1).bias(false));
    DistributedDataParallel ddp(net, group);
    const auto hook = std::make_shared<PostLocalSgdHook>(PostLocalSgdOptions{.start_iteration = 2});
    hook->set_iteration(2);
    ddp.register_comm_hook(hook);
    ddp(rows(group.rank())).sum().backward();
    EXPECT_EQ(hook->iteration(), 3);
    EXPECT_TRUE(at::equal(net->weight.grad(), rows(group.rank()).sum(0, true))) << "not averaged";
  });
}

}  // namespace
}  // namespace lockstep
