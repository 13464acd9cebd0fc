// What `lockstep bench comm` and `lockstep check` compare results with shows planted errors.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "bench/test_values.hpp"

namespace bench {
namespace {

using lockstep::ReduceOp;

constexpr std::int64_t kCount = 1000;
const std::vector<ReduceOp> kOps{ReduceOp::sum, ReduceOp::avg, ReduceOp::product, ReduceOp::min,
                                 ReduceOp::max};
const std::vector<at::ScalarType> kDtypes{at::kFloat, at::kDouble, at::kHalf, at::kBFloat16,
                                          at::kChar,  at::kByte,   at::kInt,  at::kLong};

/// As a backend does, in the dtype. `ranks` are those that take part.
at::Tensor result_of(const std::vector<int>& ranks, int size, ReduceOp op, at::ScalarType dtype) {
  at::Tensor all;
  for (const int rank : ranks) {
    const at::Tensor values = RankValues{rank, size}.to_reduce(kCount, op).to(dtype);
    all = all.defined() ? combined(all, values, op) : values;
  }
  return all;
}

std::vector<int> ranks_up_to(int size) {
  std::vector<int> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(rank);
  return ranks;
}

double share_of_wrong(const at::Tensor& one, const at::Tensor& other) {
  return one.ne(other).to(at::kDouble).mean().item<double>();
}

TEST(BenchValues, ResultsAreExactInEveryTypeAndOrder) {
  for (const int size : {2, 3, 7, 16, 100}) {
    auto ranks = ranks_up_to(size);
    for (const auto op : kOps) {
      const at::Tensor expected = result_of(ranks, size, op, at::kLong);
      for (const auto dtype : kDtypes) {
        EXPECT_TRUE(result_of(ranks, size, op, dtype).equal(expected.to(dtype))) << size << " " << dtype;
        EXPECT_TRUE(result_of({ranks.rbegin(), ranks.rend()}, size, op, dtype).equal(expected.to(dtype)));
        EXPECT_TRUE(expected.to(dtype).to(at::kLong).equal(expected)) << "no overflow";
      }
    }
  }
}

TEST(BenchValues, ShowMisplacedElements) {
  for (const int size : {2, 3, 4, 6, 8, 64}) {
    std::vector<at::Tensor> results;
    for (const auto op : kOps) results.push_back(result_of(ranks_up_to(size), size, op, at::kLong));
    for (int rank = 0; rank < 2; ++rank) results.push_back(RankValues{rank, size}.to_move(kCount));
    for (const auto& result : results) {
      for (const std::int64_t shift : {1, 2, 3, 4, 8, 16, 64, 100, 128, 256, 333, 500, 512})
        EXPECT_GT(share_of_wrong(result, result.roll({shift})), 0.9) << size << " by " << shift;
      EXPECT_GT(share_of_wrong(result, result.flip({0})), 0.9);
      EXPECT_FALSE(result.eq(0).any().item<bool>()) << "what is not written is seen";
    }
    EXPECT_GT(share_of_wrong(results[results.size() - 2], results.back()), 0.9) << "values of another rank";
  }
}

TEST(BenchValues, ShowRanksThatAreMissingOrCountTwice) {
  for (const int size : {2, 3, 4, 6, 8, 64}) {
    const auto ranks = ranks_up_to(size);
    for (const auto op : kOps) {
      const bool is_sum = op == ReduceOp::sum || op == ReduceOp::avg;
      const bool counts = is_sum || op == ReduceOp::product;
      for (const auto dtype : kDtypes) {
        const at::Tensor expected = result_of(ranks, size, op, dtype);
        for (const int rank : {0, size / 2, size - 1}) {
          auto others = ranks;
          others.erase(others.begin() + rank);
          // In products and extremes a rank decides its own positions, one of every `size`.
          const double least = is_sum ? 1 : 0.9 / size;
          EXPECT_GE(share_of_wrong(expected, result_of(others, size, op, dtype)), least)
              << size << " " << rank;
          if (!counts) continue;
          others = ranks;
          others.push_back(rank);
          EXPECT_GE(share_of_wrong(expected, result_of(others, size, op, dtype)), least)
              << size << " " << rank;
        }
      }
    }
  }
}

}  // namespace
}  // namespace bench
