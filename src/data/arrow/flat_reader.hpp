#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::arrow_file {

/// Where in a file something is, for error texts.
class Place {
 public:
  Place(std::string file, std::string where) : file_(std::move(file)), where_(std::move(where)) {}
  /// The same file, another place in it.
  Place at(std::string where) const { return {file_, std::move(where)}; }
  /// A part of this place.
  Place within(const std::string& part) const { return {file_, where_ + ", " + part}; }
  const std::string& file() const noexcept { return file_; }
  /// Throws DataError: "'FILE' is no valid Arrow file: WHERE: WHAT."
  [[noreturn]] void fail(const std::string& what) const;

 private:
  std::string file_;
  std::string where_;
};

class FlatVector;

/// A table of a flatbuffer (source: "FlatBuffers Internals"), read without trust: whatever leads out of the
/// buffer throws DataError. Absent fields give their defaults. Refers to the bytes and the place.
class FlatTable {
 public:
  /// The root table of a buffer.
  static FlatTable root(std::span<const std::uint8_t> bytes, const Place& place);

  template <typename T>
  T number(int slot, T otherwise) const {
    const auto field = find(slot, sizeof(T));
    return field == 0 ? otherwise : read<T>(field);
  }
  bool flag(int slot) const { return number<std::uint8_t>(slot, 0) != 0; }
  bool has(int slot) const { return find(slot, 1) != 0; }
  std::optional<FlatTable> table(int slot) const;
  std::string_view text(int slot) const;
  /// Elements of `element` bytes each; an absent vector is empty.
  FlatVector vector(int slot, std::size_t element) const;
  /// Strings and tables are reached by offsets.
  FlatVector tables(int slot) const;

 private:
  friend class FlatVector;
  FlatTable(std::span<const std::uint8_t> bytes, std::size_t position, const Place& place);

  template <typename T>
  T read(std::size_t position) const {
    require(position, sizeof(T));
    T value;
    std::memcpy(&value, bytes_.data() + position, sizeof value);
    return value;
  }
  void require(std::size_t position, std::size_t count) const;
  /// Where a field lies; 0 when it is absent.
  std::size_t find(int slot, std::size_t count) const;
  /// Where an offset leads to.
  std::size_t follow(std::size_t position) const;

  std::span<const std::uint8_t> bytes_;
  std::size_t position_ = 0;
  std::size_t slots_ = 0;
  std::size_t slot_count_ = 0;
  std::size_t table_bytes_ = 0;
  const Place* place_;
};

/// A vector of such a buffer.
class FlatVector {
 public:
  std::size_t size() const noexcept { return count_; }
  /// A number `offset` bytes into an element.
  template <typename T>
  T number(std::size_t index, std::size_t offset = 0) const {
    T value;
    std::memcpy(&value, bytes_.data() + begin_ + index * element_ + offset, sizeof value);
    return value;
  }
  FlatTable table(std::size_t index) const;

 private:
  friend class FlatTable;
  FlatVector(std::span<const std::uint8_t> bytes, std::size_t begin, std::size_t count, std::size_t element,
             const Place& place)
      : bytes_(bytes), begin_(begin), count_(count), element_(element), place_(&place) {}

  std::span<const std::uint8_t> bytes_;
  std::size_t begin_;
  std::size_t count_;
  std::size_t element_;
  const Place* place_;
};

}  // namespace lockstep::arrow_file
