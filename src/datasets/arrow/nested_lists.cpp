#include "datasets/arrow/nested_lists.hpp"

#include <arrow/array/array_base.h>
#include <arrow/array/data.h>
#include <arrow/type.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep::arrow_file {
namespace {

/// Where a row's elements begin and end in the child array.
std::pair<std::int64_t, std::int64_t> extent(const arrow::ArrayData& lists, std::int64_t row) {
  if (lists.type->id() == arrow::Type::FIXED_SIZE_LIST) {
    const auto length = static_cast<const arrow::FixedSizeListType&>(*lists.type).list_size();
    return {(lists.offset + row) * length, (lists.offset + row + 1) * length};
  }
  if (lists.type->id() == arrow::Type::LARGE_LIST) {
    const auto* offsets = lists.GetValues<std::int64_t>(1);
    return {offsets[row], offsets[row + 1]};
  }
  const auto* offsets = lists.GetValues<std::int32_t>(1);
  return {offsets[row], offsets[row + 1]};
}

std::int64_t measure(const arrow::ArrayData& lists, std::int64_t row, std::span<std::int64_t> lengths) {
  const auto [begin, end] = extent(lists, row);
  lengths.front() = std::max(lengths.front(), end - begin);
  if (lengths.size() == 1) return end - begin;
  std::int64_t count = 0;
  for (auto element = begin; element < end; ++element)
    count += measure(*lists.child_data.front(), element, lengths.subspan(1));
  return count;
}

/// Widens unsigned numbers to int64. Throws UsageError for one that it does not hold.
template <typename T>
void widen(const arrow::ArrayData& elements, std::int64_t begin, std::int64_t count, char* to) {
  const auto* from = elements.GetValues<T>(1) + begin;
  for (std::int64_t position = 0; position < count; ++position, to += sizeof(std::int64_t)) {
    if constexpr (sizeof(T) == sizeof(std::int64_t)) check_int64(from[position]);
    const auto number = static_cast<std::int64_t>(from[position]);
    std::memcpy(to, &number, sizeof number);
  }
}

/// Copies numbers as tensors have them: see tensor_bytes.
void copy_numbers(const arrow::ArrayData& elements, std::int64_t begin, std::int64_t count, char* to) {
  switch (elements.type->id()) {
    case arrow::Type::BOOL: {
      const auto* bits = elements.buffers[1]->data();
      for (auto bit = elements.offset + begin; bit < elements.offset + begin + count; ++bit)
        *to++ = static_cast<char>(bits[bit >> 3] >> (bit & 7) & 1);
      return;
    }
    case arrow::Type::UINT16:
      return widen<std::uint16_t>(elements, begin, count, to);
    case arrow::Type::UINT32:
      return widen<std::uint32_t>(elements, begin, count, to);
    case arrow::Type::UINT64:
      return widen<std::uint64_t>(elements, begin, count, to);
    default: {
      const std::int64_t width = elements.type->byte_width();
      const auto* from = reinterpret_cast<const char*>(elements.buffers[1]->data());
      std::memcpy(to, from + (elements.offset + begin) * width, static_cast<std::size_t>(count * width));
    }
  }
}

/// `width`: bytes per number of the tensor.
void copy(const arrow::ArrayData& lists, std::int64_t row, std::span<const std::int64_t> lengths,
          std::int64_t width, char* to) {
  const auto [begin, end] = extent(lists, row);
  if (begin == end) return;
  const auto& elements = *lists.child_data.front();
  if (lengths.size() == 1) return copy_numbers(elements, begin, end - begin, to);
  auto stride = width;
  for (const auto length : lengths.subspan(1)) stride *= length;
  for (auto element = begin; element < end; ++element)
    copy(elements, element, lengths.subspan(1), width, to + (element - begin) * stride);
}

void append(const arrow::ArrayData& lists, std::int64_t row, std::span<std::vector<std::int64_t>> ends,
            std::int64_t width, std::vector<char>& bytes) {
  const auto [begin, end] = extent(lists, row);
  ends.front().push_back(ends.front().back() + end - begin);
  if (begin == end) return;
  const auto& elements = *lists.child_data.front();
  if (ends.size() == 1) {
    const auto size = bytes.size();
    bytes.resize(size + static_cast<std::size_t>((end - begin) * width));
    return copy_numbers(elements, begin, end - begin, bytes.data() + size);
  }
  for (auto element = begin; element < end; ++element)
    append(elements, element, ends.subspan(1), width, bytes);
}

std::int64_t number_width(const Column& column) {
  const auto* type = &column.type();
  while (type->is_list()) type = &type->element();
  return static_cast<std::int64_t>(tensor_bytes(*type));
}

/// The array that contains a row, and the row's index in it.
std::pair<const arrow::ArrayData*, std::int64_t> find_row(const Column& column, std::int64_t row) {
  const auto location = column.data()->locate(column.rows()[row]);
  const auto& array = *column.data()->chunks()[location.chunk].array;
  return {array.data().get(), location.row - array.offset()};
}

}  // namespace

std::size_t tensor_bytes(const DataType& type) {
  if (type.kind() == TypeKind::boolean) return 1;
  return becomes_int64(type) ? sizeof(std::int64_t) : type.value_bytes();
}

bool becomes_int64(const DataType& type) {
  return type.kind() == TypeKind::uint16 || type.kind() == TypeKind::uint32 ||
         type.kind() == TypeKind::uint64;
}

void check_int64(std::uint64_t number) {
  if (number >> 63U == 0) return;
  throw UsageError(fmt::format(
      "the number {} is above 2^63 - 1, which int64 does not hold. Cast its column to another type", number));
}

void copy_row(const Column& column, std::int64_t row, char* to) {
  const auto [array, position] = find_row(column, row);
  copy_numbers(*array, position, 1, to);
}

std::int64_t measure_lists(const Column& column, std::int64_t row, std::span<std::int64_t> lengths) {
  const auto [lists, position] = find_row(column, row);
  return measure(*lists, position, lengths);
}

void copy_lists(const Column& column, std::int64_t row, std::span<const std::int64_t> lengths, char* to) {
  const auto [lists, position] = find_row(column, row);
  copy(*lists, position, lengths, number_width(column), to);
}

void append_lists(const Column& column, std::int64_t row, std::span<std::vector<std::int64_t>> ends,
                  std::vector<char>& bytes) {
  const auto [lists, position] = find_row(column, row);
  append(*lists, position, ends, number_width(column), bytes);
}

}  // namespace lockstep::arrow_file
