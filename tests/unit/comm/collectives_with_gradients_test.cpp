#include "lockstep/comm/collectives_with_gradients.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "lockstep/core/error.hpp"
#include "support/ranks.hpp"

namespace lockstep {
namespace {

using testing::run_group;

TEST(CollectivesWithGradients, AddUpTheGradientsOfAllRanks) {
  run_group(3, [&](const ProcessGroup& group) {
    const at::Tensor rows =
        at::arange(4, at::kDouble).view({2, 2}).add(4 * group.rank()).set_requires_grad(true);
    const at::Tensor all = all_gather_with_gradients(group, rows);
    EXPECT_TRUE(at::equal(all.detach(), at::arange(12, at::kDouble).view({6, 2})));
    // The ranks' losses are (rank + 1) * sum(x^2): their sum is 6 * sum(x^2).
    const at::Tensor loss = all.square().sum() * (group.rank() + 1);
    const at::Tensor first = torch::autograd::grad({loss}, {rows}, {}, true, /*create_graph=*/true)[0];
    EXPECT_TRUE(at::equal(first.detach(), 12 * rows.detach()));
    first.square().sum().backward();  // Its gradient is 2 * 12 * 12 * x.
    EXPECT_TRUE(at::equal(rows.grad(), 288 * rows.detach()));
    const at::Tensor value = at::full({2}, group.rank() + 1.0).set_requires_grad(true);
    const at::Tensor sum = all_reduce_with_gradients(group, value);
    EXPECT_TRUE(at::equal(sum.detach(), at::full({2}, 6.0)));
    (sum * (group.rank() + 1)).sum().backward();
    EXPECT_TRUE(at::equal(value.grad(), at::full({2}, 6.0)));
    EXPECT_THROW((void)all_gather_with_gradients(group, at::ones({})), UsageError);
  });
}

}  // namespace
}  // namespace lockstep
