#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

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

/// Which of two classes a single score means, torchmetrics guesses by its values; nobody does here.
TEST(MetricsOfTwoClasses, RefuseASingleScore) {
  const at::Tensor labels = at::tensor({1, 1, 0}, at::kLong);
  for (const at::Tensor& scores : {at::tensor({2.0, 0.3, -1.0}).view({3, 1}), at::ones({3, 1}, at::kHalf)}) {
    EXPECT_THROWS(Accuracy().update(scores, labels), UsageError, "[3, 1]", "(logits > 0)", "0.5");
    EXPECT_THROWS(Classification(2).update(scores, labels), UsageError, "(logits > 0)");
  }
  Accuracy right;
  right.update((at::tensor({2.0, 0.3, -1.0}).view({3, 1}) > 0).to(at::kLong).squeeze(-1), labels);
  EXPECT_EQ(right.compute(), 1);
}

TEST(MetricsOfLabels, TakeWholeNumbersOfAnyKind) {
  const at::Tensor scores = at::tensor({0.0, 1.0, 1.0, 0.0, 0.0, 1.0}).view({3, 2});
  for (const auto type : {at::kFloat, at::kHalf, at::kLong, at::kInt, at::kByte, at::kBool}) {
    const at::Tensor labels = at::tensor({1, 0, 0}, at::kLong).to(type);
    Accuracy right;
    right.update(scores, labels);
    EXPECT_NEAR(right.compute(), 2 / 3.0, 1e-12) << type;
    Classification both(2);
    both.update(scores, labels);
    EXPECT_EQ(both.accuracy(), right.compute()) << type;
  }
  // -100 as a byte is 156, which is a class.
  Accuracy bytes;
  bytes.update(at::full({2}, 156, at::kLong), at::full({2}, 156, at::kByte));
  EXPECT_EQ(bytes.samples(), 2);
}

TEST(MetricsOfLabels, RefuseParts) {
  const at::Tensor scores = at::zeros({2, 2});
  for (const double odd : {0.9, std::nan(""), std::numeric_limits<double>::infinity()}) {
    const at::Tensor labels = at::tensor({1.0, odd});
    EXPECT_THROWS(Accuracy().update(scores, labels), DataError, "Accuracy", "sample 1", "whole numbers");
    EXPECT_THROWS(Classification(2).update(scores, labels), DataError, "sample 1");
    EXPECT_THROWS(Perplexity().update(scores.view({1, 2, 2}), labels.view({1, 2})), DataError, "sample 1");
  }
}

/// A masked batch may be empty, and a text too short for a label to follow.
TEST(MetricsOfNothing, CountNothing) {
  Accuracy right;
  right.update(at::zeros({0, 3}), at::zeros({0}, at::kLong));
  right.update(at::zeros({0}, at::kLong), at::zeros({0}, at::kLong));
  EXPECT_EQ(right.samples(), 0);
  Classification classes(3);
  classes.update(at::zeros({0, 3}), at::zeros({0}, at::kLong));
  EXPECT_EQ(classes.samples(), 0);
  for (const std::int64_t tokens : {0, 1}) {
    Perplexity perplexity;
    perplexity.update(at::zeros({2, tokens, 5}), at::zeros({2, tokens}, at::kLong));
    perplexity.update(at::zeros({0, 4, 5}), at::zeros({0, 4}, at::kLong));
    EXPECT_EQ(perplexity.tokens(), 0);
  }
}

TEST(MetricsOfHalfScores, AreThoseOfFloats) {
  const at::Tensor scores = at::sin(at::arange(2 * 7 * 5).view({2, 7, 5}) * 0.9);
  const at::Tensor labels = (at::arange(14) % 5).view({2, 7}).masked_fill(at::arange(14).view({2, 7}) == 3, -100);
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    Classification half(5), whole(5);
    half.update(scores.to(type), labels);
    whole.update(scores.to(type).to(at::kFloat), labels);
    EXPECT_EQ(half.f1(), whole.f1());
    Perplexity perplexity, wide;
    perplexity.update(scores.to(type), labels);
    wide.update(scores.to(type).to(at::kFloat), labels);
    EXPECT_EQ(perplexity.compute(), wide.compute());
  }
}

}  // namespace
}  // namespace lockstep::metrics
