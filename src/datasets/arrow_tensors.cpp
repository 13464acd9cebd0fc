#include "lockstep/datasets/arrow_tensors.hpp"

#include <ATen/ATen.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

std::optional<at::ScalarType> scalar_type_of(const DataType& type) {
  switch (type.kind()) {
    case TypeKind::boolean:
      return at::kBool;
    case TypeKind::uint8:
      return at::kByte;
    case TypeKind::int8:
      return at::kChar;
    case TypeKind::int16:
      return at::kShort;
    case TypeKind::int32:
      return at::kInt;
    case TypeKind::int64:
      return at::kLong;
    case TypeKind::float16:
      return at::kHalf;
    case TypeKind::float32:
      return at::kFloat;
    case TypeKind::float64:
      return at::kDouble;
    default:
      return std::nullopt;
  }
}

/// Lists of booleans are bits: left out.
std::optional<at::ScalarType> column_dtype(const DataType& type) {
  if (!type.is_list()) return scalar_type_of(type);
  return type.element().kind() == TypeKind::boolean ? std::nullopt : scalar_type_of(type.element());
}

/// A row's piece of a column: its number, or its elements.
struct RowPiece {
  const std::uint8_t* values;
  /// Of these, in elements.
  std::int64_t begin;
  std::int64_t count;
};

RowPiece piece_of(const Column& column, std::int64_t row) {
  if (row < 0 || row >= column.size()) table::fail_row(row, column.size());
  const auto& data = *column.data();
  const auto place = data.locate(column.rows()[row]);
  const auto& raw = data.raw(place.chunk);
  if (!column.type().is_list()) return {raw.values, place.row, 1};
  const auto [begin, end] = table::extent(column.type(), raw, place.row);
  return {raw.values, begin, end - begin};
}

/// Where a null lies in a list's buffer there is no value, but whatever the writer left there.
void check_elements(const std::string& name, const Column& column) {
  if (!column.has_null_elements()) return;
  for (std::int64_t row = 0; row < column.size(); ++row) {
    const auto value = column.value(row);
    const auto null = std::find(value.list().begin(), value.list().end(), Value());
    if (null == value.list().end()) continue;
    throw UsageError(fmt::format(
        "the column '{}' of the type {} has a null inside its list of row {} (element {}), which no tensor "
        "can show. Filter those rows, fill the nulls with map(), or leave the column out of `columns`.",
        name, column.type().text(), row, null - value.list().begin()));
  }
}

void check_column(const std::string& name, const Column& column) {
  if (!column_dtype(column.type())) {
    throw UsageError(
        fmt::format("the column '{}' of the type {} has no tensor: numbers, booleans and lists of numbers "
                    "have. Cast it, or leave it out of `columns`.",
                    name, column.type().text()));
  }
  if (column.null_count() > 0) {
    throw UsageError(
        fmt::format("the column '{}' has nulls, which no tensor can show. Filter those rows first.", name));
  }
  if (column.type().is_list()) check_elements(name, column);
}

void copy_piece(const RowPiece& piece, const Column& column, void* to) {
  if (piece.count == 0) return;
  if (column.type().kind() == TypeKind::boolean) {
    *static_cast<bool*>(to) = (piece.values[piece.begin >> 3] >> (piece.begin & 7) & 1) != 0;
    return;
  }
  const auto width = (column.type().is_list() ? column.type().element() : column.type()).value_bytes();
  std::memcpy(to, piece.values + static_cast<std::size_t>(piece.begin) * width,
              static_cast<std::size_t>(piece.count) * width);
}

at::Tensor row_tensor(const Column& column, std::int64_t row) {
  const auto piece = piece_of(column, row);
  const auto dtype = *column_dtype(column.type());
  auto tensor = column.type().is_list() ? at::empty({piece.count}, dtype) : at::empty({}, dtype);
  copy_piece(piece, column, tensor.mutable_data_ptr());
  return tensor;
}

using Padding = std::map<std::string, double>;

at::Tensor batch_tensor(const std::string& name, const Column& column, std::span<const std::int64_t> rows,
                        const Padding& padding) {
  std::vector<RowPiece> pieces;
  std::int64_t longest = 0;
  for (const auto row : rows) {
    pieces.push_back(piece_of(column, row));
    longest = std::max(longest, pieces.back().count);
  }
  const auto dtype = *column_dtype(column.type());
  const auto count = static_cast<std::int64_t>(rows.size());
  if (!column.type().is_list()) longest = 1;
  const bool ragged = std::any_of(pieces.begin(), pieces.end(),
                                  [&](const RowPiece& piece) { return piece.count != longest; });
  const auto fill = padding.find(name);
  if (ragged && fill == padding.end()) {
    throw UsageError("the lists of the column '" + name +
                     "' have different lengths in one batch. Give a value for it in "
                     "ArrowTensorOptions::padding, or make them alike.");
  }
  auto tensor = ragged ? at::full({count, longest}, fill->second, at::TensorOptions().dtype(dtype))
                       : at::empty({count, longest}, dtype);
  auto* bytes = static_cast<char*>(tensor.mutable_data_ptr());
  const auto stride = longest * static_cast<std::int64_t>(tensor.element_size());
  for (std::int64_t row = 0; row < count; ++row)
    copy_piece(pieces[static_cast<std::size_t>(row)], column, bytes + row * stride);
  return column.type().is_list() ? tensor : tensor.squeeze(1);
}

std::vector<std::string> usable_columns(const ArrowDataset& data) {
  std::vector<std::string> names;
  for (const auto& [name, column] : data.columns()) {
    if (column_dtype(column.type())) names.push_back(name);
  }
  return names;
}

}  // namespace

ArrowTensorDataset::ArrowTensorDataset(ArrowDataset data, ArrowTensorOptions options)
    : data_(std::move(data)), options_(std::move(options)) {
  if (options_.columns.empty()) options_.columns = usable_columns(data_);
  for (const auto& name : options_.columns) check_column(name, data_.column(name));
}

Example ArrowTensorDataset::get(std::int64_t index, const SampleContext&) const {
  Example example;
  for (const auto& name : options_.columns) example.insert(name, row_tensor(data_.column(name), index));
  return example;
}

Batch ArrowTensorDataset::get_batch(std::span<const std::int64_t> indices,
                                    std::span<const SampleContext>) const {
  Batch batch;
  for (const auto& name : options_.columns) {
    batch.insert(name, batch_tensor(name, data_.column(name), indices, options_.padding));
  }
  batch.indices.assign(indices.begin(), indices.end());
  return batch;
}

std::vector<std::string> ArrowTensorDataset::texts(std::string_view column,
                                                   std::span<const std::int64_t> indices) const {
  const auto view = data_.column<std::string_view>(column);
  std::vector<std::string> texts;
  for (const auto index : indices) texts.emplace_back(view[index]);
  return texts;
}

}  // namespace lockstep
