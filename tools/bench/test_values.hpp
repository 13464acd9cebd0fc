#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "lockstep/comm/reduce_op.hpp"

namespace bench {

/// The elements of one rank of several, as int64: small integers, of which every element type holds each one
/// and every result of up to 125 ranks, whatever the order in which it is reduced.
struct RankValues {
  int rank = 0;
  int ranks = 1;
  at::Device device = at::kCPU;

  /// To be moved: 1 to 100, another sequence of each rank.
  at::Tensor to_move(std::int64_t count) const;

  /// To be reduced by `op`. At each position one rank, the next of all at the next position, has a value of
  /// that position, 2 to 100 (mirrored for the minimum), and all others have the neutral 1 (100 for the
  /// minimum). So every result is that value, with the ones of the others added in sums: an element of
  /// another position, a rank that is missing and, except for min and max, to which it makes no difference,
  /// one that counts twice change it.
  at::Tensor to_reduce(std::int64_t count, lockstep::ReduceOp op) const;
};

/// What a reduction makes of the values of two ranks (of avg, the sum), in their type.
at::Tensor combined(const at::Tensor& one, const at::Tensor& other, lockstep::ReduceOp op);

}  // namespace bench
