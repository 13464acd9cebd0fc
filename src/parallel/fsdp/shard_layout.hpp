#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::parallel {

/// A range of elements.
struct Range {
  std::int64_t begin = 0;
  std::int64_t size = 0;
};

/// Where the tensors of a unit lie in its flat buffer, and which part of them each rank has. The buffer is
/// cut into as many equal parts as there are ranks, without regard to the tensors: gathering and reducing it
/// need no copies, and no tensor has to divide by the number of ranks.
class ShardLayout {
 public:
  /// `sizes`: the elements of each tensor, in order. Tensors begin at multiples of `alignment` elements.
  /// `ranks` is 1 or more.
  ShardLayout(const std::vector<std::int64_t>& sizes, std::int64_t alignment, int ranks);

  /// The elements of the flat buffer, and of a rank's part of it.
  std::int64_t size() const noexcept { return shard_size_ * ranks_; }
  std::int64_t shard_size() const noexcept { return shard_size_; }

  /// Where tensor `number` lies in the flat buffer.
  Range tensor(std::size_t number) const { return tensors_.at(number); }

  /// What a rank has of tensor `number`, as a range of the rank's part, and as one of the tensor; empty ones
  /// begin somewhere in it.
  Range in_shard(std::size_t number, int rank) const;
  Range in_tensor(std::size_t number, int rank) const;

  /// What lies between the tensors and behind them.
  const std::vector<Range>& gaps() const noexcept { return gaps_; }

 private:
  std::vector<Range> tensors_;
  std::vector<Range> gaps_;
  std::int64_t shard_size_ = 0;
  int ranks_;
};

}  // namespace lockstep::parallel
