#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/datasets/data_type.hpp"

namespace lockstep {

/// Bytes that somebody keeps alive: a piece of a mapped file, or of memory. Never changed.
struct Buffer {
  const std::uint8_t* data = nullptr;
  std::size_t bytes = 0;
  /// The mapping or the allocation. Empty only where there are no bytes.
  std::shared_ptr<const void> owner;

  /// Takes over a vector or a string.
  template <typename Container>
  static Buffer of(Container container) {
    auto kept = std::make_shared<const Container>(std::move(container));
    const auto* first = reinterpret_cast<const std::uint8_t*>(kept->data());
    const auto count = kept->size() * sizeof(typename Container::value_type);
    return {first, count, std::move(kept)};
  }
};

/// A piece of a column in a file.
struct FileLocation {
  std::shared_ptr<const std::string> file;
  std::int64_t record_batch = 0;
  std::string column;
};

/// One piece of a column in Arrow's memory layout, which this follows (source: "Arrow Columnar Format", the
/// section on physical layouts), but for two things: it always begins at row 0 of its buffers, and
/// dictionaries are resolved when they are read. What a reader made has been checked: every buffer is as long
/// as `length` demands and lies on a multiple of its elements' size. That every offset leads into its data is
/// known where `unchecked` is empty.
struct ArrayData {
  DataType type;
  /// Rows.
  std::int64_t length = 0;
  std::int64_t null_count = 0;
  /// One bit a row, lowest first, 1 for a value; no bytes when nothing is null.
  Buffer validity;
  /// length + 1 starts, int32 or (large types) int64, for text, binary and lists of any length.
  Buffer offsets;
  /// The values of numbers, bits (booleans), bytes of text and binary.
  Buffer values;
  /// A list's elements, a structure's columns.
  std::vector<std::shared_ptr<const ArrayData>> children;
  /// Where it was mapped from, if its offsets were not read at that time: ChunkedArray::locate does so when
  /// the piece is first needed, so that opening a file reads no more of it than its descriptions.
  std::shared_ptr<const FileLocation> unchecked;

  bool is_null(std::int64_t row) const noexcept {
    if (type.kind() == TypeKind::null) return true;
    return validity.data != nullptr && (validity.data[row >> 3] >> (row & 7) & 1) == 0;
  }
};

using ArrayPointer = std::shared_ptr<const ArrayData>;

}  // namespace lockstep
