#include "lockstep/models/sync_batch_norm.hpp"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/library.h>
#include <torch/nn/modules/batchnorm.h>

#include <numeric>
#include <optional>
#include <vector>

#include "lockstep/core/error.hpp"
#include "parallel/sync_batch_norm_kernels.hpp"
#include "support/ranks.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

/// Over ranks with different numbers of rows, one without any: the results of one process over all rows.
TEST(SyncBatchNorm, IsBatchNormOverAllRanks) {
  const at::Tensor rows = torch::linspace(-3, 5, 12 * 2 * 3).view({12, 2, 3}).sin();
  const at::Tensor factors = torch::linspace(0.5, 2, 12 * 2 * 3).view({12, 2, 3}).cos();
  torch::nn::BatchNorm1d plain(2);
  plain->weight.data().copy_(torch::tensor({0.5, 2.0}));
  const at::Tensor input = rows.clone().requires_grad_();
  const at::Tensor wanted = plain(input);
  (wanted * factors).sum().backward();
  const std::vector<std::int64_t> shares = {7, 0, 5};
  testing::run_group(3, [&](const ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    const std::int64_t begin = rank == 0 ? 0 : 7;
    models::SyncBatchNorm synced(models::SyncBatchNormOptions{.num_features = 2}, group);
    synced->weight.data().copy_(plain->weight.data());
    const at::Tensor mine = rows.narrow(0, begin, shares[rank]).clone().requires_grad_();
    const at::Tensor output = synced(mine);
    EXPECT_TRUE(torch::allclose(output, wanted.narrow(0, begin, shares[rank]), 1e-5, 1e-6));
    (output * factors.narrow(0, begin, shares[rank])).sum().backward();
    EXPECT_TRUE(torch::allclose(mine.grad(), input.grad().narrow(0, begin, shares[rank]), 1e-5, 1e-5));
    const at::Tensor weight_gradient = synced->weight.grad().clone();
    group.all_reduce(weight_gradient);
    EXPECT_TRUE(torch::allclose(weight_gradient, plain->weight.grad(), 1e-5, 1e-5));
    EXPECT_TRUE(torch::allclose(synced->running_mean, plain->running_mean));
    EXPECT_TRUE(torch::allclose(synced->running_var, plain->running_var));
    EXPECT_EQ(synced->num_batches_tracked.item<int>(), 1);
    synced->eval();
    torch::nn::BatchNorm1d other(2);
    other->eval();
    torch::NoGradGuard no_grad;
    other->weight.copy_(synced->weight);
    other->running_mean.copy_(synced->running_mean);
    other->running_var.copy_(synced->running_var);
    EXPECT_TRUE(torch::equal(synced(rows), other(rows)));
  });
}

/// A penalty on gradients: second-order gradients are those of one process over all rows.
TEST(SyncBatchNorm, GradientsOfGradientsAreThoseOfOneProcess) {
  const auto doubles = at::TensorOptions(at::kDouble);
  const at::Tensor rows = torch::linspace(-3, 5, 12 * 2 * 3, doubles).view({12, 2, 3}).sin();
  const at::Tensor factors = torch::linspace(0.5, 2, 12 * 2 * 3, doubles).view({12, 2, 3}).cos();
  const auto penalty_of = [](auto& norm, const at::Tensor& input, const at::Tensor& factor) {
    const at::Tensor loss = (norm(input).tanh() * factor).sum();
    return torch::autograd::grad({loss}, {input}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0]
        .square()
        .sum();
  };
  torch::nn::BatchNorm1d plain(2);
  plain->to(at::kDouble);
  plain->weight.data().copy_(torch::tensor({0.5, 2.0}));
  const at::Tensor input = rows.clone().requires_grad_();
  penalty_of(plain, input, factors).backward();
  const std::vector<std::int64_t> shares = {7, 0, 5};
  testing::run_group(3, [&](const ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    const std::int64_t begin = rank == 0 ? 0 : 7;
    models::SyncBatchNorm synced(models::SyncBatchNormOptions{.num_features = 2}, group);
    synced->to(at::kDouble);
    synced->weight.data().copy_(plain->weight.data());
    const at::Tensor mine = rows.narrow(0, begin, shares[rank]).clone().requires_grad_();
    penalty_of(synced, mine, factors.narrow(0, begin, shares[rank])).backward();
    EXPECT_TRUE(torch::allclose(mine.grad(), input.grad().narrow(0, begin, shares[rank]), 1e-9, 1e-9));
    at::Tensor weight_gradient = synced->weight.grad().clone();
    group.all_reduce(weight_gradient);
    EXPECT_TRUE(torch::allclose(weight_gradient, plain->weight.grad(), 1e-9, 1e-9));
  });
}

/// With a mean that is large beside the deviation, results in the input's precision would be far off.
TEST(SyncBatchNorm, ComputesHalfPrecisionInFloat) {
  const at::Tensor rows = torch::linspace(-3, 5, 8 * 2 * 3).view({8, 2, 3}).sin().add(20).to(at::kBFloat16);
  const at::Tensor factors = torch::linspace(0.5, 2, 8 * 2 * 3).view({8, 2, 3}).cos().to(at::kBFloat16);
  torch::nn::BatchNorm1d plain(2);
  const at::Tensor input = rows.to(at::kFloat).requires_grad_();
  const at::Tensor wanted = plain(input);
  (wanted * factors).sum().backward();
  testing::run_group(2, [&](const ProcessGroup& group) {
    models::SyncBatchNorm synced(models::SyncBatchNormOptions{.num_features = 2}, group);
    const at::Tensor mine = rows.narrow(0, 4 * group.rank(), 4).clone().requires_grad_();
    const at::Tensor output = synced(mine);
    // To the last bit of bfloat16.
    const double precision = 1.0 / 128;
    const auto expected = [&](const at::Tensor& all) { return all.narrow(0, 4 * group.rank(), 4); };
    EXPECT_EQ(output.scalar_type(), at::kBFloat16);
    EXPECT_TRUE(torch::allclose(output.to(at::kFloat), expected(wanted), precision, 0));
    (output * factors.narrow(0, 4 * group.rank(), 4)).sum().backward();
    EXPECT_TRUE(torch::allclose(mine.grad().to(at::kFloat), expected(input.grad()), precision, 1e-4));
  });
}

TEST(SyncBatchNorm, NeedsRowsOfFloatingPointNumbers) {
  testing::run_group(2, [](const ProcessGroup& group) {
    models::SyncBatchNorm synced(models::SyncBatchNormOptions{.num_features = 2}, group);
    EXPECT_THROWS(synced(torch::ones({2})), UsageError, "two dimensions or more");
    EXPECT_THROWS(synced(torch::ones({3, 2}, at::kLong)), UsageError, "floating-point input");
  });
}

TEST(SyncBatchNorm, NeedsTwoValuesAChannel) {
  for (const int ranks : {1, 2}) {
    testing::run_group(ranks, [](const ProcessGroup& group) {
      models::SyncBatchNorm synced(models::SyncBatchNormOptions{.num_features = 2}, group);
      const at::Tensor few = torch::ones({group.rank() == 0 ? 1 : 0, 2});
      EXPECT_THROWS(synced(few), UsageError, "more than one value");
      synced->eval();
      EXPECT_TRUE(synced(few).isfinite().all().item<bool>());
    });
  }
}

// LibTorch has these kernels only for CUDA. These are the same formulas, in the order in which it adds the
// ranks' statistics, so that the code around the kernels can be tested without a GPU.

std::vector<std::int64_t> but_channels(const at::Tensor& tensor) {
  std::vector<std::int64_t> dimensions{0};
  for (std::int64_t i = 2; i < tensor.dim(); ++i) dimensions.push_back(i);
  return dimensions;
}

at::Tensor spread(const at::Tensor& values, const at::Tensor& like) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(like.dim()), 1);
  sizes[1] = -1;
  return values.view(sizes);
}

std::tuple<at::Tensor, at::Tensor> stats(const at::Tensor& input, double eps) {
  return {input.mean(but_channels(input)), (input.var(but_channels(input), false) + eps).rsqrt()};
}

std::tuple<at::Tensor, at::Tensor> gather_stats(const at::Tensor&, const at::Tensor& means,
                                                const at::Tensor& inverses, const MaybeTensor& running_mean,
                                                const MaybeTensor& running_var, double momentum, double eps,
                                                const at::Tensor& counts) {
  at::Tensor mean = at::zeros_like(means[0]), squares = at::zeros_like(mean), all = at::zeros({});
  for (std::int64_t rank = 0; rank < means.size(0); ++rank) {
    const at::Tensor count = counts[rank], share = 1 / (all + count);
    const at::Tensor variance = inverses[rank].pow(-2) - eps;
    squares += variance * count + (mean - means[rank]).square() * all * count * share;
    mean = all * share * mean + count * share * means[rank];
    all = all + count;
  }
  if (running_mean && running_mean->defined()) {
    running_mean->mul_(1 - momentum).add_(mean * momentum);
    running_var->mul_(1 - momentum).add_(squares / (all - 1) * momentum);
  }
  return {mean, (squares / all + eps).rsqrt()};
}

at::Tensor elemt(const at::Tensor& input, const MaybeTensor& weight, const MaybeTensor& bias,
                 const at::Tensor& mean, const at::Tensor& inverse, double) {
  at::Tensor output = (input - spread(mean, input)) * spread(inverse, input);
  if (weight && weight->defined()) output = output * spread(*weight, input);
  return bias && bias->defined() ? output + spread(*bias, input) : output;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> backward_reduce(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& mean, const at::Tensor& inverse,
    const MaybeTensor&, bool, bool, bool) {
  const at::Tensor sum = gradient.sum(but_channels(input));
  const at::Tensor products = (gradient * (input - spread(mean, input))).sum(but_channels(input));
  return {sum, products, products * inverse, sum};
}

at::Tensor backward_elemt(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& mean,
                          const at::Tensor& inverse, const MaybeTensor& weight, const at::Tensor& sum,
                          const at::Tensor& products, const at::Tensor& counts) {
  EXPECT_EQ(counts.scalar_type(), at::kInt);
  const at::Tensor all = counts.sum();
  const at::Tensor of_input =
      gradient - spread(sum / all, input) -
      (input - spread(mean, input)) * spread(inverse.square() * products / all, input);
  const at::Tensor scale = weight && weight->defined() ? inverse * *weight : inverse;
  return of_input * spread(scale, input);
}

TORCH_LIBRARY_IMPL(aten, CPU, library) {
  library.impl("batch_norm_stats", &stats);
  library.impl("batch_norm_gather_stats_with_counts", &gather_stats);
  library.impl("batch_norm_elemt", &elemt);
  library.impl("batch_norm_backward_reduce", &backward_reduce);
  library.impl("batch_norm_backward_elemt", &backward_elemt);
}

/// Same results as the CPU's formulas, whichever ranks have no rows.
TEST(SyncBatchNorm, ByKernelsIsTheSame) {
  const at::Tensor rows = torch::linspace(-3, 5, 12 * 2 * 3 * 2).view({12, 2, 3, 2}).sin();
  const at::Tensor factors = torch::linspace(0.5, 2, 12 * 2 * 3 * 2).view({12, 2, 3, 2}).cos();
  for (const bool is_affine : {true, false}) {
    for (const bool channels_last : {false, true}) {
      for (const auto& shares : {std::vector<std::int64_t>{0, 7, 5}, {7, 5, 0}, {0, 12, 0}}) {
        testing::run_group(3, [&](const ProcessGroup& group) {
          const auto rank = static_cast<std::size_t>(group.rank());
          const std::int64_t begin =
              std::accumulate(shares.begin(), shares.begin() + group.rank(), std::int64_t{0});
          std::vector<std::vector<at::Tensor>> results;
          for (const bool by_kernels : {false, true}) {
            at::Tensor mine = rows.narrow(0, begin, shares[rank]).clone();
            if (channels_last) mine = mine.contiguous(at::MemoryFormat::ChannelsLast);
            mine.requires_grad_();
            at::Tensor weight, bias;
            if (is_affine)
              weight = torch::tensor({0.5, 2.0}).requires_grad_(), bias = torch::ones({2}).requires_grad_();
            const BatchNormStatistics running{torch::zeros({2}), torch::ones({2})};
            const auto norm = by_kernels ? sync_batch_norm_by_kernels : sync_batch_norm;
            const at::Tensor output = norm(mine, weight, bias, running, 0.1, 1e-5, group);
            (output * factors.narrow(0, begin, shares[rank])).sum().backward();
            results.push_back({output, mine.grad(), running.running_mean, running.running_var});
            if (is_affine) results.back().insert(results.back().end(), {weight.grad(), bias.grad()});
          }
          for (std::size_t i = 0; i < results[0].size(); ++i)
            EXPECT_TRUE(torch::allclose(results[1][i], results[0][i], 1e-4, 1e-5))
                << i << " of rank " << rank;
        });
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
