#include "nested_lists.hpp"

#include <arrow/array/array_base.h>
#include <arrow/array/data.h>
#include <arrow/type.h>

#include <algorithm>
#include <cstring>
#include <utility>

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

const char* numbers_of(const arrow::ArrayData& elements, std::int64_t begin, std::int64_t width) {
  return reinterpret_cast<const char*>(elements.buffers[1]->data()) + (elements.offset + begin) * width;
}

/// `width`: bytes per number.
void copy(const arrow::ArrayData& lists, std::int64_t row, std::span<const std::int64_t> lengths,
          std::int64_t width, char* to) {
  const auto [begin, end] = extent(lists, row);
  if (begin == end) return;
  const auto& elements = *lists.child_data.front();
  if (lengths.size() == 1) {
    std::memcpy(to, numbers_of(elements, begin, width), static_cast<std::size_t>((end - begin) * width));
    return;
  }
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
    const auto* from = numbers_of(elements, begin, width);
    bytes.insert(bytes.end(), from, from + (end - begin) * width);
    return;
  }
  for (auto element = begin; element < end; ++element)
    append(elements, element, ends.subspan(1), width, bytes);
}

std::int64_t number_width(const Column& column) {
  const auto* type = &column.type();
  while (type->is_list()) type = &type->element();
  return static_cast<std::int64_t>(type->value_bytes());
}

/// The array that contains a row, and the row's index in it.
std::pair<const arrow::ArrayData*, std::int64_t> found(const Column& column, std::int64_t row) {
  const auto place = column.data()->locate(column.rows()[row]);
  const auto& array = *column.data()->chunks()[place.chunk].array;
  return {array.data().get(), place.row - array.offset()};
}

}  // namespace

std::int64_t measure_lists(const Column& column, std::int64_t row, std::span<std::int64_t> lengths) {
  const auto [lists, place] = found(column, row);
  return measure(*lists, place, lengths);
}

void copy_lists(const Column& column, std::int64_t row, std::span<const std::int64_t> lengths, char* to) {
  const auto [lists, place] = found(column, row);
  copy(*lists, place, lengths, number_width(column), to);
}

void append_lists(const Column& column, std::int64_t row, std::span<std::vector<std::int64_t>> ends,
                  std::vector<char>& bytes) {
  const auto [lists, place] = found(column, row);
  append(*lists, place, ends, number_width(column), bytes);
}

}  // namespace lockstep::arrow_file
