#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::tokenizer {

/// The result and the rank of each merge of two adjacent tokens: a hash table of fixed size, filled once.
class MergeTable {
 public:
  static constexpr std::uint32_t kNever = ~std::uint32_t{0};
  struct Merge {
    std::uint32_t rank = kNever;
    std::uint32_t id = 0;
  };

  explicit MergeTable(std::size_t merges) {
    std::size_t capacity = 16;
    shift_ = 60;
    for (; capacity < 2 * merges; capacity *= 2) --shift_;
    slots_.resize(capacity);
  }

  /// Replaces the merge of a pair that is already there.
  void add(std::uint32_t left, std::uint32_t right, const Merge& merge) {
    slots_[slot(key(left, right))] = {key(left, right), merge};
  }

  /// The rank is kNever for a pair that is not merged.
  Merge find(std::uint32_t left, std::uint32_t right) const noexcept {
    return slots_[slot(key(left, right))].merge;
  }

 private:
  struct Slot {
    std::uint64_t key = 0;
    Merge merge;
  };

  static std::uint64_t key(std::uint32_t left, std::uint32_t right) {
    return std::uint64_t{left} << 32 | right;
  }
  std::size_t slot(std::uint64_t key) const noexcept {
    auto position = (key * 0x9E3779B97F4A7C15ULL) >> shift_;
    while (slots_[position].merge.rank != kNever && slots_[position].key != key) {
      position = (position + 1) & (slots_.size() - 1);
    }
    return position;
  }

  std::vector<Slot> slots_;
  unsigned shift_ = 0;
};

}  // namespace lockstep::tokenizer
