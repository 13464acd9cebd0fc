#include "datasets/arrow/validation.hpp"

#include <arrow/array/array_primitive.h>
#include <arrow/array/data.h>
#include <arrow/array/validate.h>
#include <arrow/type.h>
#include <fmt/core.h>

#include <optional>

namespace lockstep::arrow_file {
namespace {

/// Checks what Arrow's constant-time validation leaves out: that offsets do not decrease. ValidateFull would
/// also read all text to check UTF-8.
template <typename Offset>
std::string damaged_offsets(const arrow::ArrayData& array) {
  if (array.length == 0) return {};
  const auto* offsets = array.GetValues<Offset>(1);
  for (std::int64_t row = 0; row < array.length; ++row) {
    if (offsets[row + 1] >= offsets[row]) continue;
    return fmt::format("row {}: its offsets go from {} back to {}", row, offsets[row], offsets[row + 1]);
  }
  return {};
}

std::string own_damaged_offsets(const arrow::ArrayData& array) {
  switch (array.type->id()) {
    case arrow::Type::STRING:
    case arrow::Type::BINARY:
    case arrow::Type::LIST:
      return damaged_offsets<std::int32_t>(array);
    case arrow::Type::LARGE_STRING:
    case arrow::Type::LARGE_BINARY:
    case arrow::Type::LARGE_LIST:
      return damaged_offsets<std::int64_t>(array);
    default:
      return {};
  }
}

/// The same of the array and all its children.
std::string all_damaged_offsets(const arrow::ArrayData& array) {
  auto damage = own_damaged_offsets(array);
  for (auto child = array.child_data.begin(); damage.empty() && child != array.child_data.end(); ++child)
    damage = all_damaged_offsets(**child);
  return damage;
}

/// The last offset of a list array; none if the buffer does not reach as far, which validation reports.
template <typename Offset>
std::optional<std::int64_t> last_offset(const arrow::ArrayData& array) {
  const auto needed = (array.offset + array.length + 1) * static_cast<std::int64_t>(sizeof(Offset));
  if (array.buffers.size() < 2 || array.buffers[1] == nullptr || array.buffers[1]->size() < needed)
    return std::nullopt;
  return array.GetValues<Offset>(1)[array.length];
}

/// How many elements the children of this array must have.
std::optional<std::int64_t> child_length(const arrow::ArrayData& array) {
  switch (array.type->id()) {
    case arrow::Type::LIST:
      return last_offset<std::int32_t>(array);
    case arrow::Type::LARGE_LIST:
      return last_offset<std::int64_t>(array);
    case arrow::Type::FIXED_SIZE_LIST:
      return (array.offset + array.length) *
             static_cast<const arrow::FixedSizeListType&>(*array.type).list_size();
    case arrow::Type::STRUCT:
      return array.offset + array.length;
    default:
      return std::nullopt;
  }
}

}  // namespace

std::string damage_of(const arrow::ArrayData& array) {
  const auto status = arrow::internal::ValidateArray(array);
  return status.ok() ? all_damaged_offsets(array) : status.message();
}

std::shared_ptr<arrow::ArrayData> with_null_lengths(const std::shared_ptr<arrow::ArrayData>& array) {
  if (array->child_data.empty()) return array;
  const auto length = child_length(*array);
  auto made = array->Copy();
  for (auto& child : made->child_data) {
    if (child->type->id() != arrow::Type::NA) {
      child = with_null_lengths(child);
    } else if (length && *length >= 0) {
      child = arrow::NullArray(*length).data();
    }
  }
  return made;
}

}  // namespace lockstep::arrow_file
