#include "test_values.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>

#include <algorithm>

namespace bench {

using lockstep::ReduceOp;

namespace {

/// 0 to `values` - 1, without a pattern that a shift by some elements keeps: the remainders of a square.
at::Tensor mixed(const at::Tensor& positions, std::int64_t values) {
  constexpr std::int64_t kPrime = 2147483647;
  constexpr std::int64_t kFactor = 1327217885;
  const at::Tensor spread = positions.remainder(kPrime).mul_(kFactor).remainder_(kPrime);
  return spread.mul_(spread.clone()).remainder_(kPrime).remainder_(values);
}

}  // namespace

at::Tensor RankValues::to_move(std::int64_t count) const {
  // Far from each other, so that no rank's sequence is in another one's.
  constexpr std::int64_t kBetweenRanks = 1000003;
  const auto options = at::TensorOptions(at::kLong).device(device);
  return mixed(at::arange(count, options).add_(1 + kBetweenRanks * rank), 100).add_(1);
}

at::Tensor RankValues::to_reduce(std::int64_t count, ReduceOp op) const {
  // A sum of 127 fits all types, also int8 and, exactly, bfloat16.
  const std::int64_t most = std::clamp<std::int64_t>(127 - ranks, 2, 99);
  const at::Tensor positions = at::arange(count, at::TensorOptions(at::kLong).device(device));
  const at::Tensor own = mixed(positions + 1, most).add_(2);
  const at::Tensor values = at::where(positions.remainder(ranks).eq(rank), own, at::ones_like(own));
  return op == ReduceOp::min ? values.mul(-1).add_(101) : values;
}

at::Tensor combined(const at::Tensor& one, const at::Tensor& other, ReduceOp op) {
  if (op == ReduceOp::min) return at::minimum(one, other);
  if (op == ReduceOp::max) return at::maximum(one, other);
  return op == ReduceOp::product ? one.mul(other) : one.add(other);
}

}  // namespace bench
