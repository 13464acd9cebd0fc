#pragma once

#include <vector>

#include "lockstep/datasets/column_builder.hpp"
#include "lockstep/datasets/features.hpp"

namespace lockstep::readers {

/// The columns of the piece of rows that is being read.
class PieceBuilder {
 public:
  explicit PieceBuilder(const Features& features) {
    for (const auto& item : features.items()) columns_.emplace_back(item.second.type());
  }

  ColumnBuilder& column(std::size_t place) { return columns_[place]; }

  /// The record batches of data sets are no larger: a reader of one row looks at one of them.
  bool is_full() const {
    constexpr std::int64_t kRows = 10'000;
    constexpr std::size_t kBytes = std::size_t{32} << 20;
    const auto rows = columns_.front().size();
    if (rows >= kRows) return true;
    // Only a few rows that are very long come near the limit of bytes between two looks.
    if (rows % 16 != 0) return false;
    std::size_t bytes = 0;
    for (const auto& column : columns_) bytes += column.bytes();
    return bytes >= kBytes;
  }

  /// What was added, and begins anew; nothing where there was no row.
  std::vector<ArrayPointer> take() {
    std::vector<ArrayPointer> arrays;
    if (columns_.front().size() == 0) return arrays;
    for (auto& column : columns_) arrays.push_back(column.finish().flatten());
    return arrays;
  }

 private:
  std::vector<ColumnBuilder> columns_;
};

}  // namespace lockstep::readers
