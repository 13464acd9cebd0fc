#include "lockstep/parallel/parallel_context.hpp"

#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/core/error.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "support/ranks.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using testing::run_group;

/// The sum of the ranks in a mode's group, by a collective of that group.
int sum_over(const ParallelContext& context, ParallelMode mode) {
  const at::Tensor sum = at::scalar_tensor(context.get_global_rank(), at::kLong);
  context.get_group(mode).all_reduce(sum);
  return sum.item<int>();
}

TEST(ParallelContext, GroupsCarryCollectivesOfTheirOwn) {
  run_group(4, [](const ProcessGroup& world) {
    const ParallelContext context(world, {.data_parallel_size = 4, .shard_size = 2});
    EXPECT_EQ(context.shape(), (std::vector{2, 2, 1}));
    EXPECT_EQ(context.get_coordinate(), (std::vector{world.rank() / 2, world.rank() % 2, 0}));
    EXPECT_EQ(sum_over(context, ParallelMode::global), 6);
    EXPECT_EQ(sum_over(context, ParallelMode::data), 6);
    EXPECT_EQ(sum_over(context, ParallelMode::shard), world.rank() < 2 ? 1 : 5);
    EXPECT_EQ(sum_over(context, ParallelMode::replica), world.rank() % 2 == 0 ? 2 : 4);
    EXPECT_EQ(sum_over(context, ParallelMode::model), world.rank());
    EXPECT_EQ(context.get_local_rank(ParallelMode::shard), world.rank() % 2);
    EXPECT_EQ(context.get_world_size(ParallelMode::replica), 2);
    EXPECT_EQ(context.is_last_rank(ParallelMode::data), world.rank() == 3);
    EXPECT_THROWS(ParallelContext(world, {.data_parallel_size = 3}), UsageError, "data_parallel_size");
  });
}

TEST(ParallelContext, DdpAveragesOverTheDataGroup) {
  run_group(4, [](const ProcessGroup& world) {
    const ParallelContext context(world, {.data_parallel_size = 2});
    torch::nn::Linear net(torch::nn::LinearOptions(1, 1).bias(false));
    DistributedDataParallel ddp(net, context);
    ddp(at::full({1, 1}, static_cast<float>(world.rank()))).sum().backward();
    // Ranks 0 and 2 hold one part of the model, ranks 1 and 3 the other.
    EXPECT_EQ(net->weight.grad().item<float>(), world.rank() % 2 == 0 ? 1 : 2);
  });
}

}  // namespace
}  // namespace lockstep
