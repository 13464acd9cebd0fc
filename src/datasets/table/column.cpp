#include "lockstep/datasets/column.hpp"

#include <arrow/array.h>
#include <arrow/util/float16.h>
#include <arrow/visit_array_inline.h>
#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "datasets/arrow/arrow_conversions.hpp"
#include "datasets/arrow/mapped_file.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

Value value_of(const arrow::Array& array, std::int64_t row);

template <typename ListArray>
Value list_value(const ListArray& array, std::int64_t row) {
  Value::List list;
  const auto& elements = *array.values();
  const auto begin = array.value_offset(row);
  const auto end = begin + array.value_length(row);
  list.reserve(static_cast<std::size_t>(end - begin));
  for (auto index = begin; index < end; ++index) list.push_back(value_of(elements, index));
  return Value(std::move(list));
}

Value structure_value(const arrow::StructArray& array, std::int64_t row) {
  Value::Fields fields;
  for (int child = 0; child < array.num_fields(); ++child)
    fields.emplace_back(array.struct_type()->field(child)->name(), value_of(*array.field(child), row));
  return Value(std::move(fields));
}

/// Reads a row of an array of any supported type.
struct ValueReader {
  std::int64_t row;
  Value value = {};

  template <typename Array>
  arrow::Status Visit(const Array& array) {
    using Type = typename Array::TypeClass;
    if constexpr (std::is_same_v<Type, arrow::BooleanType>) {
      value = Value(static_cast<bool>(array.Value(row)));
    } else if constexpr (std::is_same_v<Type, arrow::HalfFloatType>) {
      value = Value(arrow::util::Float16::FromBits(array.Value(row)).ToDouble());
    } else if constexpr (arrow::is_floating_type<Type>::value) {
      value = Value(static_cast<double>(array.Value(row)));
    } else if constexpr (arrow_file::StoredAsInteger<Type>) {
      using Widest = std::conditional_t<std::is_signed_v<typename Type::c_type>, std::int64_t, std::uint64_t>;
      value = Value(static_cast<Widest>(array.Value(row)));
    } else if constexpr (arrow::is_decimal_type<Type>::value) {
      value = Value(array.FormatValue(row));
    } else if constexpr (arrow::is_string_type<Type>::value) {
      value = Value(array.GetView(row));
    } else if constexpr (arrow::is_base_binary_type<Type>::value ||
                         arrow::is_fixed_size_binary_type<Type>::value) {
      value = Value(Bytes{std::string(array.GetView(row))});
    } else if constexpr (arrow::is_list_like_type<Type>::value) {
      value = list_value(array, row);
    } else if constexpr (std::is_same_v<Type, arrow::StructType>) {
      value = structure_value(array, row);
    } else {
      return arrow::Status::TypeError("no column has the type ", array.type()->ToString());
    }
    return arrow::Status::OK();
  }
};

Value value_of(const arrow::Array& array, std::int64_t row) {
  if (array.IsNull(row)) return {};
  ValueReader reader{row};
  const auto status = arrow::VisitArrayInline(array, &reader);
  if (!status.ok()) throw Error(status.message() + ".");
  return std::move(reader.value);
}

void check_row(std::int64_t row, std::int64_t size) {
  if (row < 0 || row >= size) table::fail_row(row, size);
}

const arrow_file::Location kMemory("memory", "an array");

/// The files of several columns; null if one of them is in memory.
std::shared_ptr<const table::SourceFiles> joined_source_files(std::span<const Column> columns) {
  auto joined = std::make_shared<table::SourceFiles>();
  for (const auto& column : columns) {
    const auto& source_files = column.data()->source_files();
    if (!source_files) return nullptr;
    joined->parts.insert(joined->parts.end(), source_files->parts.begin(), source_files->parts.end());
  }
  return joined;
}

/// Whether `has_nulls` is true for the elements of lists, at any depth.
bool any_elements(const arrow::ArrayData& lists, const DataType& type,
                  bool (*has_nulls)(const arrow::ArrayData&)) {
  const auto& elements = *lists.child_data.front();
  return has_nulls(elements) ||
         (type.element().is_list() && any_elements(elements, type.element(), has_nulls));
}

}  // namespace

namespace table {

void fail_row(std::int64_t row, std::int64_t size) {
  throw UsageError(fmt::format("row {} does not exist: there are {} rows, numbered from 0.", row, size));
}

void fail_null(std::int64_t row) {
  throw UsageError(fmt::format(
      "row {} of the column is null. Ask is_null first, or use get, which gives nothing for a null.", row));
}

void fail_type(const DataType& type, const char* asked) {
  throw UsageError("the column has the type " + type.text() + " and cannot be read as " + asked +
                   ". Read it as its own type, or cast the column first.");
}

bool stores(const DataType& type, std::size_t bytes, bool floating, bool is_signed) noexcept {
  if (type.value_bytes() != bytes) return false;
  // Its values are read as their bits.
  if (type.kind() == TypeKind::float16) return !floating && !is_signed;
  if (type.is_floating()) return floating;
  const bool is_unsigned = arrow::is_unsigned_integer(type.arrow()->id());
  return (type.is_integer() || type.is_temporal()) && !floating && is_signed != is_unsigned;
}

}  // namespace table

Column::Column() : data_(std::make_shared<const ColumnData>(DataType(), std::vector<table::Chunk>{})) {}

Column::Column(const ArrayPointer& array)
    : Column(std::make_shared<const ColumnData>(
          arrow_file::type_of(*array->type(), kMemory),
          std::vector<table::Chunk>{{arrow_file::plain_array(array->data(), kMemory)}})) {}

Column::Column(std::shared_ptr<const ColumnData> data) : data_(std::move(data)), rows_(0, data_->size()) {}

Column::Column(std::shared_ptr<const ColumnData> data, RowMap rows)
    : data_(std::move(data)), rows_(std::move(rows)) {}

std::int64_t Column::null_count() const {
  std::int64_t count = 0;
  for (std::int64_t row = 0; row < size(); ++row) count += is_null(row) ? 1 : 0;
  return count;
}

bool Column::is_null(std::int64_t row) const {
  check_row(row, size());
  const auto location = data_->locate(rows_[row]);
  const auto& array = *data_->chunks()[location.chunk].array;
  return array.IsNull(location.row - array.offset());
}

Value Column::value(std::int64_t row) const {
  check_row(row, size());
  const auto location = data_->locate(rows_[row]);
  const auto& array = *data_->chunks()[location.chunk].array;
  return value_of(array, location.row - array.offset());
}

Column Column::slice(std::int64_t start, std::int64_t count) const {
  if (start < 0 || count < 0 || start > size() - count) {
    throw UsageError(fmt::format("a slice of {} rows from row {} on is out of range for a column of {} rows.",
                                 count, start, size()));
  }
  return {data_, rows_.slice(start, count)};
}

Column Column::select(std::span<const std::int64_t> rows) const {
  for (const auto row : rows) check_row(row, size());
  return {data_, rows_.select(rows)};
}

ArrayPointer Column::flatten() const { return arrow_file::rows_of(*this, 0, size()); }

Column Column::concatenate(std::span<const Column> columns) {
  if (columns.empty()) throw UsageError("there is no column to concatenate.");
  std::vector<table::Chunk> chunks;
  bool whole = true;
  for (const auto& column : columns) {
    const auto pieces = arrow_file::pieces_of(column);
    chunks.insert(chunks.end(), pieces.begin(), pieces.end());
    whole = whole && arrow_file::is_whole(column);
  }
  auto data = std::make_shared<const ColumnData>(columns.front().type(), std::move(chunks),
                                                 whole ? joined_source_files(columns) : nullptr);
  return Column(std::move(data));
}

bool Column::has_null_elements() const {
  if (!type().is_list()) return false;
  for (std::size_t chunk = 0; chunk < data_->chunks().size(); ++chunk) {
    const auto& lists = *data_->chunks()[chunk].array->data();
    if (!any_elements(lists, type(), [](const auto& elements) { return elements.MayHaveNulls(); })) continue;
    // Counting reads the bitmaps: locate() verifies their lengths first.
    static_cast<void>(data_->locate(data_->start(chunk)));
    if (any_elements(lists, type(), [](const auto& elements) { return elements.GetNullCount() > 0; }))
      return true;
  }
  return false;
}

void Column::check_elements() const {
  if (!has_null_elements()) return;
  throw UsageError(
      "the lists of the column have nulls inside them, which a span cannot show. Use value(), "
      "or fill the nulls first.");
}

}  // namespace lockstep
