#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::parallel {

/// A range of elements.
struct Range {
  std::int64_t begin = 0;
  std::int64_t size = 0;
};

/// The positions of a unit's tensors in its flat buffer, and each rank's part of them. The buffer is split
/// into equal parts, one per rank, regardless of the tensors' bounds: gathering and reducing need no copies,
/// and no tensor size has to be divisible by the number of ranks.
class ShardLayout {
 public:
  /// `sizes`: the number of elements of each tensor, in order. Tensors begin at multiples of `alignment`
  /// elements. `ranks` is 1 or more.
  ShardLayout(const std::vector<std::int64_t>& sizes, std::int64_t alignment, int ranks);

  /// The number of elements of the flat buffer, and of a rank's part of it.
  std::int64_t size() const noexcept { return shard_size_ * ranks_; }
  std::int64_t shard_size() const noexcept { return shard_size_; }

  /// The range of tensor `number` in the flat buffer.
  Range tensor(std::size_t number) const { return tensors_.at(number); }

  /// A rank's part of tensor `number`, as a range of the rank's part of the buffer, and as a range of the
  /// tensor. The begin of an empty range is arbitrary.
  Range in_shard(std::size_t number, int rank) const;
  Range in_tensor(std::size_t number, int rank) const;

  /// The ranges between the tensors and after the last one.
  const std::vector<Range>& gaps() const noexcept { return gaps_; }

 private:
  std::vector<Range> tensors_;
  std::vector<Range> gaps_;
  std::int64_t shard_size_ = 0;
  int ranks_;
};

}  // namespace lockstep::parallel
