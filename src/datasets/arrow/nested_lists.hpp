#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/datasets/column.hpp"

namespace lockstep::arrow_file {

// A column of lists of numbers, at any depth, as a tensor has it: a block of memory with one length for each
// level of lists, or one after another. Rows are Column's; nulls are not looked for. All throw as
// ColumnData::locate.

/// Raises `lengths` to those of the longest lists in a row, level by level. Returns how many numbers it has.
std::int64_t measure_lists(const Column& column, std::int64_t row, std::span<std::int64_t> lengths);

/// Copies the numbers of a row to their places in a block of these lengths; the others are left as they are.
void copy_lists(const Column& column, std::int64_t row, std::span<const std::int64_t> lengths, char* to);

/// Appends the numbers of a row to `bytes`, and to each level of `ends` where its lists end, counted from the
/// first one's begin: each level begins with a 0.
void append_lists(const Column& column, std::int64_t row, std::span<std::vector<std::int64_t>> ends,
                  std::vector<char>& bytes);

}  // namespace lockstep::arrow_file
