#include "lockstep/datasets/arrow_tensors.hpp"

#include <ATen/ATen.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "datasets/arrow/nested_lists.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

std::optional<at::ScalarType> scalar_type_of(const DataType& type) {
  if (arrow_file::becomes_int64(type)) return at::kLong;
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

/// Number of list levels around a column's numbers.
std::size_t depth_of(const DataType& type) { return type.is_list() ? 1 + depth_of(type.element()) : 0; }

/// The dtype of the numbers, at any depth; null for what has none.
std::optional<at::ScalarType> column_dtype(const DataType& type) {
  return type.is_list() ? column_dtype(type.element()) : scalar_type_of(type);
}

bool has_null(const Value& value) {
  const auto* list = std::get_if<Value::List>(&value.variant());
  return value.is_null() || (list != nullptr && std::any_of(list->begin(), list->end(), has_null));
}

/// Rejects nulls inside lists: the buffer has arbitrary bytes in their places.
void check_elements(const std::string& name, const Column& column) {
  if (!column.has_null_elements()) return;
  for (std::int64_t row = 0; row < column.size(); ++row) {
    const auto value = column.value(row);
    const auto& list = value.list();
    const auto null = std::find_if(list.begin(), list.end(), has_null);
    if (null == list.end()) continue;
    throw UsageError(fmt::format(
        "the column '{}' of the type {} has a null inside its list of row {} (element {}), which no tensor "
        "can show. Filter those rows, fill the nulls with map(), or leave the column out of `columns`.",
        name, column.type().text(), row, null - list.begin()));
  }
}

bool is_text(const Column& column) {
  const auto kind = column.type().kind();
  return kind == TypeKind::utf8 || kind == TypeKind::large_utf8;
}

void check_column(const std::string& name, const Column& column) {
  if (!column_dtype(column.type()) && !is_text(column)) {
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

/// Runs work that copies numbers of a column.
template <typename Work>
void named(const std::string& column, const Work& work) {
  try {
    work();
  } catch (const UsageError& error) {
    throw UsageError("column '" + column + "': " + error.what());
  }
}

using Padding = std::map<std::string, double>;

at::Tensor batch_tensor(const std::string& name, const Column& column, std::span<const std::int64_t> rows,
                        const Padding& padding) {
  // Number of rows, then the longest list of each level.
  std::vector<std::int64_t> sizes(1 + depth_of(column.type()), 0);
  sizes.front() = std::ssize(rows);
  const auto lengths = std::span(sizes).subspan(1);
  std::int64_t numbers = 0;
  for (const auto row : rows) {
    if (row < 0 || row >= column.size()) table::fail_row(row, column.size());
    if (!lengths.empty()) numbers += arrow_file::measure_lists(column, row, lengths);
  }
  auto tensor = at::empty(sizes, *column_dtype(column.type()));
  if (!lengths.empty() && numbers != tensor.numel()) {
    const auto fill = padding.find(name);
    if (fill == padding.end()) {
      throw UsageError("the lists of the column '" + name +
                       "' have different lengths in one batch. Give a value for it in "
                       "ArrowTensorOptions::padding, or make them alike.");
    }
    tensor.fill_(fill->second);
  }
  auto* to = static_cast<char*>(tensor.mutable_data_ptr());
  named(name, [&] {
    for (const auto row : rows) {
      if (lengths.empty()) {
        arrow_file::copy_row(column, row, to);
      } else {
        arrow_file::copy_lists(column, row, lengths, to);
      }
      to += tensor.nbytes() / rows.size();
    }
  });
  return tensor;
}

/// Inserts the numbers of all rows, and the offsets of the lists of each level.
void insert_jagged(Batch& batch, const std::string& name, const Column& column,
                   std::span<const std::int64_t> rows) {
  std::vector<std::vector<std::int64_t>> ends(depth_of(column.type()), {0});
  std::vector<char> bytes;
  for (const auto row : rows)
    if (row < 0 || row >= column.size()) table::fail_row(row, column.size());
  named(name, [&] {
    for (const auto row : rows) arrow_file::append_lists(column, row, ends, bytes);
  });
  at::Tensor numbers = at::empty({ends.back().back()}, *column_dtype(column.type()));
  if (!bytes.empty()) std::memcpy(numbers.mutable_data_ptr(), bytes.data(), bytes.size());
  batch.insert(name, std::move(numbers));
  for (std::size_t level = 0; level < ends.size(); ++level) {
    const auto suffix = level == 0 ? "_offsets" : fmt::format("_offsets_{}", level);
    batch.insert(name + suffix, at::tensor(ends[level], at::kLong));
  }
}

std::vector<std::string> usable_columns(const ArrowDataset& data) {
  std::vector<std::string> names;
  for (const auto& [name, column] : data.columns()) {
    if (column_dtype(column.type()) && depth_of(column.type()) <= 1) names.push_back(name);
  }
  return names;
}

}  // namespace

ArrowTensorDataset::ArrowTensorDataset(ArrowDataset data, ArrowTensorOptions options)
    : data_(std::move(data)), options_(std::move(options)) {
  if (options_.columns.empty()) options_.columns = usable_columns(data_);
  for (const auto& name : options_.columns) check_column(name, data_.column(name));
  for (const auto& name : options_.jagged) {
    const auto& columns = options_.columns;
    if (std::find(columns.begin(), columns.end(), name) == columns.end() ||
        depth_of(data_.column(name).type()) == 0) {
      throw UsageError(
          fmt::format("the jagged column '{}' is not one of the data set's lists of numbers.", name));
    }
  }
}

Example ArrowTensorDataset::get(std::int64_t index, const SampleContext&) const {
  Example example;
  for (const auto& name : options_.columns) {
    const auto column = data_.column(name);
    if (is_text(column)) {
      example.set_texts(name, texts(name, {&index, 1}));
    } else {
      example.insert(name, batch_tensor(name, column, {&index, 1}, options_.padding).select(0, 0));
    }
  }
  return example;
}

Batch ArrowTensorDataset::get_batch(std::span<const std::int64_t> indices,
                                    std::span<const SampleContext>) const {
  Batch batch;
  const auto& jagged = options_.jagged;
  for (const auto& name : options_.columns) {
    const auto column = data_.column(name);
    if (is_text(column)) {
      batch.set_texts(name, texts(name, indices));
    } else if (std::find(jagged.begin(), jagged.end(), name) != jagged.end()) {
      insert_jagged(batch, name, column, indices);
    } else {
      batch.insert(name, batch_tensor(name, column, indices, options_.padding));
    }
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
