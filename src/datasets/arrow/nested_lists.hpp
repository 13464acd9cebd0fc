#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/datasets/column.hpp"

namespace lockstep::arrow_file {

// Reads a column of numbers, or of lists of them at any depth, into the memory of tensors: padded, with one
// length per level of lists, or concatenated. Rows are those of Column; nulls are not checked. All functions
// throw like ColumnData::locate.
//
// Booleans become bytes. Few operations take tensors of unsigned numbers of more than 8 bits: these become
// int64, as in `datasets`.

/// The bytes of a number of this type in a tensor.
std::size_t tensor_bytes(const DataType& type);

/// Whether numbers of this type become int64: uint16, uint32 and uint64.
bool becomes_int64(const DataType& type);

/// Throws UsageError for a number that int64 does not hold.
void check_int64(std::uint64_t number);

/// Copies the number of a row of a column without lists.
void copy_row(const Column& column, std::int64_t row, char* to);

/// Raises each of `lengths` to the longest list of that level in the row. Returns the row's number of values.
std::int64_t measure_lists(const Column& column, std::int64_t row, std::span<std::int64_t> lengths);

/// Copies the numbers of a row to their indices in a block of these lengths; leaves the others unchanged.
void copy_lists(const Column& column, std::int64_t row, std::span<const std::int64_t> lengths, char* to);

/// Appends the numbers of a row to `bytes`, and the ends of its lists to each level of `ends`. Each level
/// begins with a 0; ends count from the first row.
void append_lists(const Column& column, std::int64_t row, std::span<std::vector<std::int64_t>> ends,
                  std::vector<char>& bytes);

}  // namespace lockstep::arrow_file
