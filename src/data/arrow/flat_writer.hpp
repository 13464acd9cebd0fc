#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::arrow_file {

/// Writes a flatbuffer from front to back: a table first, with places for what it refers to, then those, each
/// linked when it is there.
class FlatWriter {
 public:
  /// A scalar of 1, 2, 4 or 8 bytes; a reference is `reference(slot)`.
  struct Slot {
    int slot;
    std::size_t bytes;
    std::uint64_t value;
  };
  static Slot reference(int slot) { return {slot, 4, 0}; }

  /// A table with these fields. Gives the places of the fields, in the order given.
  struct Table {
    std::size_t position;
    std::vector<std::size_t> fields;
  };
  Table table(const std::vector<Slot>& slots);
  std::size_t text(std::string_view text);
  /// A vector of `count` references, its elements at position + 4 + 4 * i.
  std::size_t references(std::size_t count);
  /// A vector of structures made of 64-bit numbers, `width` each.
  std::size_t structures(const std::vector<std::int64_t>& numbers, std::size_t width);

  /// Makes the reference at `place` lead to `target`.
  void link(std::size_t place, std::size_t target);
  /// The bytes, a multiple of 8, with this table as the root.
  std::string finish(std::size_t root);

 private:
  void align(std::size_t to, std::size_t behind = 0);
  template <typename T>
  void add(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }

  std::string bytes_ = std::string(8, '\0');
};

}  // namespace lockstep::arrow_file
