#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/datasets/column.hpp"

namespace lockstep::table {

/// `count` rows of an array from `begin` on.
struct Range {
  const ArrayData* array;
  std::int64_t begin;
  std::int64_t count;
};

/// `count` rows of a column, from `start` on, as ranges, neighbours joined.
std::vector<Range> ranges_of(const ChunkedArray& data, const RowMap& rows, std::int64_t start,
                             std::int64_t count);

/// The ranges' rows, copied into one array. Throws UsageError when their text or lists exceed the 2^31 - 1
/// bytes or elements that 32-bit offsets can tell apart.
ArrayPointer copy_ranges(const DataType& type, std::span<const Range> ranges);

}  // namespace lockstep::table
