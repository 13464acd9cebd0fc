#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace lockstep::tokenizer {

/// A map from byte strings to numbers that finds the longest string that is a prefix of a text. The edges of
/// all nodes are in one hash table. Filled once.
class ByteTrie {
 public:
  static constexpr std::uint32_t kNothing = ~std::uint32_t{0};
  struct Match {
    std::size_t length = 0;
    std::uint32_t value = kNothing;
  };

  ByteTrie() { rehash(kFirstCapacity); }

  /// Adds a nonempty string; a string that is already there keeps its number.
  void add(std::string_view text, std::uint32_t value) {
    std::uint32_t node = 0;
    for (const char byte : text) node = grow(node, byte);
    if (values_[node] == kNothing) values_[node] = value;
  }

  /// Calls `found(length, value)` for each string that is a prefix of the text, from the shortest to the
  /// longest.
  template <class Found>
  void for_each_prefix(std::string_view text, const Found& found) const {
    std::uint32_t node = 0;
    for (std::size_t position = 0; position < text.size(); ++position) {
      node = edges_[slot(key(node, text[position]))].child;
      if (node == 0) break;
      if (values_[node] != kNothing) found(position + 1, values_[node]);
    }
  }

  /// The longest string that is a prefix of the text; length 0 if there is none.
  Match longest(std::string_view text) const noexcept {
    Match match;
    for_each_prefix(text, [&](std::size_t length, std::uint32_t value) { match = {length, value}; });
    return match;
  }

 private:
  static constexpr std::size_t kFirstCapacity = 1024;
  struct Edge {
    std::uint64_t key = 0;
    /// 0 means no edge: the root is not a child.
    std::uint32_t child = 0;
  };

  static std::uint64_t key(std::uint32_t node, char byte) {
    return (std::uint64_t{node} << 8 | static_cast<unsigned char>(byte)) + 1;
  }

  /// The slot of the edge, or the free one for it.
  std::size_t slot(std::uint64_t key) const noexcept {
    auto position = (key * 0x9E3779B97F4A7C15ULL) >> shift_;
    while (edges_[position].child != 0 && edges_[position].key != key)
      position = (position + 1) & (edges_.size() - 1);
    return position;
  }

  std::uint32_t grow(std::uint32_t node, char byte) {
    if (2 * values_.size() > edges_.size()) rehash(2 * edges_.size());
    auto& edge = edges_[slot(key(node, byte))];
    if (edge.child == 0) {
      edge = {key(node, byte), static_cast<std::uint32_t>(values_.size())};
      values_.push_back(kNothing);
    }
    return edge.child;
  }

  void rehash(std::size_t capacity) {
    std::vector<Edge> old(capacity);
    old.swap(edges_);
    shift_ = 64;
    for (auto rest = capacity; rest > 1; rest /= 2) --shift_;
    for (const auto& edge : old) {
      if (edge.child != 0) edges_[slot(edge.key)] = edge;
    }
  }

  std::vector<Edge> edges_;
  unsigned shift_ = 0;
  std::vector<std::uint32_t> values_{kNothing};
};

}  // namespace lockstep::tokenizer
