#include "parallel/fsdp/shard_layout.hpp"

#include <algorithm>

namespace lockstep::parallel {
namespace {

std::int64_t rounded_up(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

ShardLayout::ShardLayout(const std::vector<std::int64_t>& sizes, std::int64_t alignment, int ranks)
    : ranks_(ranks) {
  std::int64_t end = 0;
  const auto begin_at = [&](std::int64_t begin) {
    if (begin > end) gaps_.push_back({end, begin - end});
    end = begin;
  };
  for (const std::int64_t size : sizes) {
    begin_at(rounded_up(end, alignment));
    tensors_.push_back({end, size});
    end += size;
  }
  shard_size_ = rounded_up((end + ranks - 1) / ranks, alignment);
  begin_at(shard_size_ * ranks);
}

Range ShardLayout::in_shard(std::size_t number, int rank) const {
  const Range whole = tensors_.at(number);
  const std::int64_t shard = shard_size_ * rank;
  const auto offset_of = [&](std::int64_t element) {
    return std::clamp<std::int64_t>(element - shard, 0, shard_size_);
  };
  const std::int64_t begin = offset_of(whole.begin);
  return {begin, offset_of(whole.begin + whole.size) - begin};
}

Range ShardLayout::in_tensor(std::size_t number, int rank) const {
  const Range whole = tensors_.at(number);
  const std::int64_t begin = std::clamp<std::int64_t>(shard_size_ * rank - whole.begin, 0, whole.size);
  return {begin, in_shard(number, rank).size};
}

}  // namespace lockstep::parallel
