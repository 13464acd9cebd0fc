#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/core/error.hpp"
#include "lockstep/train/metrics.hpp"
#include "support/ranks.hpp"
#include "support/throws.hpp"

namespace lockstep::metrics {
namespace {

/// Rows of 0 to 59 for rank 1 of 2 or more; the other ranks have the rest, rank 0 one batch more.
at::Tensor part(const at::Tensor& rows, int rank, int size) {
  if (size == 1) return rows;
  return rank == 1 ? rows.narrow(0, 0, 60) : rank == 0 ? rows.narrow(0, 60, 41) : rows.narrow(0, 0, 0);
}

class Ranks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Metrics, Ranks, ::testing::Values(1, 2, 3));

TEST_P(Ranks, ClassificationAndAccuracyAreThoseOfOneRank) {
  const at::Tensor scores = at::sin(at::arange(101 * 4).view({101, 4}) * 1.7);
  const at::Tensor labels =
      (at::arange(101) * 7 % 5).masked_fill(at::arange(101) % 5 == 4, kIgnoredLabel) % 4;
  const at::Tensor counting = at::where(at::arange(101) % 10 == 3, kIgnoredLabel, labels.abs());
  Classification whole(4);
  whole.update(scores, counting);
  testing::run_group(GetParam(), [&](const ProcessGroup& group) {
    Classification mine(4);
    Accuracy right;
    const at::Tensor rows = part(scores, group.rank(), group.size());
    mine.update(rows, part(counting, group.rank(), group.size()));
    right.update(rows.argmax(-1), part(counting, group.rank(), group.size()));
    const Classification all = mine.of_all_ranks(group);
    EXPECT_EQ(all.samples(), 91);
    EXPECT_EQ(all.f1(), whole.f1());
    EXPECT_EQ(all.matthews(), whole.matthews());
    EXPECT_EQ(right.of_all_ranks(group).compute(), whole.accuracy());
  });
}

TEST_P(Ranks, RegressionIsThatOfOneRank) {
  const at::Tensor targets = at::sin(at::arange(202, at::kDouble).view({101, 2})) + 1e6;
  const at::Tensor answers = targets + at::cos(at::arange(202, at::kDouble).view({101, 2}) * 3) / 4;
  Regression whole(2);
  whole.update(answers, targets);
  testing::run_group(GetParam(), [&](const ProcessGroup& group) {
    Regression mine(2);
    mine.update(part(answers, group.rank(), group.size()), part(targets, group.rank(), group.size()));
    const Regression all = mine.of_all_ranks(group);
    EXPECT_EQ(all.samples(), 101);
    EXPECT_NEAR(all.mse(), whole.mse(), 1e-14);
    EXPECT_NEAR(all.mae(), whole.mae(), 1e-14);
    EXPECT_NEAR(all.r2(), whole.r2(), 1e-8);  // the targets' own digits end there
  });
}

/// No rounding may make equal targets differ.
TEST_P(Ranks, EqualTargetsHaveNoSpread) {
  testing::run_group(GetParam(), [&](const ProcessGroup& group) {
    Regression mine;
    const at::Tensor targets = part(at::full({101}, 0.1, at::kDouble), group.rank(), group.size());
    mine.update(targets, targets);
    EXPECT_EQ(mine.of_all_ranks(group).r2(), 1);
  });
}

TEST_P(Ranks, PerplexityIsThatOfOneRank) {
  const at::Tensor logits = at::sin(at::arange(101 * 3 * 5).view({101, 3, 5}) * 0.37);
  const at::Tensor labels = (at::arange(303) % 5).view({101, 3});
  const at::Tensor some = at::where(labels == 2, kIgnoredLabel, labels);
  const at::Tensor next = some.narrow(1, 1, 2).reshape({-1});
  const at::Tensor loss = at::cross_entropy_loss(logits.narrow(1, 0, 2).reshape({-1, 5}), next);
  testing::run_group(GetParam(), [&](const ProcessGroup& group) {
    Perplexity mine, unshifted;
    mine.update(part(logits, group.rank(), group.size()), part(some, group.rank(), group.size()));
    const Perplexity all = mine.of_all_ranks(group);
    EXPECT_EQ(all.tokens(), (next != kIgnoredLabel).sum().item<std::int64_t>());
    EXPECT_NEAR(all.compute(), std::exp(loss.item<double>()), 1e-5);
    unshifted.update(logits, labels, false);
    EXPECT_EQ(unshifted.tokens(), 303);
  });
}

TEST_P(Ranks, BleuIsThatOfOneRank) {
  Bleu whole;
  for (int rank = 0; rank < GetParam(); ++rank)
    whole.update("a b c d e " + std::to_string(rank), "a b c d f");
  testing::run_group(GetParam(), [&](const ProcessGroup& group) {
    Bleu mine;
    mine.update("a b c d e " + std::to_string(group.rank()), "a b c d f");
    const Bleu all = mine.of_all_ranks(group);
    EXPECT_EQ(all.samples(), GetParam());
    EXPECT_EQ(all.compute(), whole.compute());
  });
}

TEST(MetricTensors, ThatDoNotFitAreRefused) {
  Classification metric(3);
  EXPECT_THROWS(metric.update(at::zeros({2, 4}), at::zeros({2}, at::kLong)), UsageError, "[2, 4]",
                "3 classes");
  EXPECT_THROWS(metric.update(at::zeros({2, 3}), at::zeros({3}, at::kLong)), UsageError, "[2, 3]", "[3]");
  Regression errors(2);
  EXPECT_THROWS(errors.update(at::zeros({4}), at::zeros({4})), UsageError, "[rows, 2]", "[4]");
  Perplexity perplexity;
  EXPECT_THROWS(perplexity.update(at::zeros({2}), at::zeros({}, at::kLong)), UsageError, "vocabulary");
}

}  // namespace
}  // namespace lockstep::metrics
