#include "lockstep/datasets/column.hpp"

#include <bit>
#include <cmath>

#include "datasets/arrow/decimal.hpp"
#include "half.hpp"
#include "lockstep/core/error.hpp"
#include "source_files.hpp"
#include "take.hpp"

namespace lockstep {
namespace table {
namespace {

struct Width {
  TypeKind kind;
  std::size_t bytes;
  bool floating;
  bool is_signed;
};

constexpr Width kWidths[] = {
    {TypeKind::int8, 1, false, true},      {TypeKind::int16, 2, false, true},
    {TypeKind::int32, 4, false, true},     {TypeKind::int64, 8, false, true},
    {TypeKind::uint8, 1, false, false},    {TypeKind::uint16, 2, false, false},
    {TypeKind::uint32, 4, false, false},   {TypeKind::uint64, 8, false, false},
    {TypeKind::float32, 4, true, true},    {TypeKind::float64, 8, true, true},
    {TypeKind::date32, 4, false, true},    {TypeKind::time32, 4, false, true},
    {TypeKind::date64, 8, false, true},    {TypeKind::time64, 8, false, true},
    {TypeKind::timestamp, 8, false, true}, {TypeKind::duration, 8, false, true},
    {TypeKind::float16, 2, false, false},
};

template <typename T>
T number(const ArrayData& array, std::int64_t row) {
  T value;
  std::memcpy(&value, array.values.data + row * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

Value floating_value(const ArrayData& array, std::int64_t row) {
  if (array.type.kind() == TypeKind::float64) return number<double>(array, row);
  if (array.type.kind() == TypeKind::float32) return double{number<float>(array, row)};
  return double{half_to_float(number<std::uint16_t>(array, row))};
}

Value integer_value(const ArrayData& array, std::int64_t row) {
  const bool is_unsigned = array.type.kind() >= TypeKind::uint8 && array.type.kind() <= TypeKind::uint64;
  switch (array.type.value_bytes()) {
    case 1:
      return is_unsigned ? Value(int{number<std::uint8_t>(array, row)})
                         : Value(int{number<std::int8_t>(array, row)});
    case 2:
      return is_unsigned ? Value(int{number<std::uint16_t>(array, row)})
                         : Value(int{number<std::int16_t>(array, row)});
    case 4:
      return is_unsigned ? Value(std::int64_t{number<std::uint32_t>(array, row)})
                         : Value(int{number<std::int32_t>(array, row)});
    default:
      return is_unsigned ? Value(number<std::uint64_t>(array, row)) : Value(number<std::int64_t>(array, row));
  }
}

ChunkedArray::Raw raw_of(const ArrayData& array) {
  return {array.validity.data, array.offsets.data, array.values.data};
}

Value text_value(const ArrayData& array, std::int64_t row) {
  const auto text = Reader<std::string_view>::read(array.type, raw_of(array), row);
  const auto kind = array.type.kind();
  if (kind == TypeKind::utf8 || kind == TypeKind::large_utf8) return Value(text);
  return Value(Bytes{std::string(text)});
}

Value value_of(const ArrayData& array, std::int64_t row);

Value list_value(const ArrayData& array, std::int64_t row) {
  const auto [begin, end] = extent(array.type, raw_of(array), row);
  Value::List list;
  list.reserve(static_cast<std::size_t>(end - begin));
  for (auto place = begin; place < end; ++place) list.push_back(value_of(*array.children.front(), place));
  return Value(std::move(list));
}

Value structure_value(const ArrayData& array, std::int64_t row) {
  Value::Fields fields;
  for (std::size_t child = 0; child < array.children.size(); ++child) {
    fields.emplace_back(array.type.fields()[child].name, value_of(*array.children[child], row));
  }
  return Value(std::move(fields));
}

Value value_of(const ArrayData& array, std::int64_t row) {
  if (array.is_null(row)) return {};
  const auto& type = array.type;
  if (type.kind() == TypeKind::boolean) return Value(Reader<bool>::read(type, raw_of(array), row));
  if (type.is_floating()) return floating_value(array, row);
  if (type.is_decimal()) return Value(arrow_file::decimal_text(array, row));
  if (type.is_text_or_binary() || type.kind() == TypeKind::fixed_size_binary) return text_value(array, row);
  if (type.is_list()) return list_value(array, row);
  if (type.kind() == TypeKind::struct_) return structure_value(array, row);
  return integer_value(array, row);
}

}  // namespace

void fail_row(std::int64_t row, std::int64_t size) {
  throw UsageError("row " + std::to_string(row) + " does not exist: there are " + std::to_string(size) +
                   " rows, numbered from 0.");
}

void fail_null(std::int64_t row) {
  throw UsageError("row " + std::to_string(row) +
                   " of the column is null. Ask is_null first, or use get, which gives nothing for a null.");
}

void fail_type(const DataType& type, const char* asked) {
  throw UsageError("the column has the type " + type.text() + " and cannot be read as " + asked +
                   ". Read it as its own type, or cast the column first.");
}

bool stores(const DataType& type, std::size_t bytes, bool floating, bool is_signed) noexcept {
  for (const auto& one : kWidths) {
    if (one.kind == type.kind())
      return one.bytes == bytes && one.floating == floating && one.is_signed == is_signed;
  }
  return false;
}

}  // namespace table

namespace {

void check_row(std::int64_t row, std::int64_t size) {
  if (row < 0 || row >= size) table::fail_row(row, size);
}

}  // namespace

Column::Column() : data_(std::make_shared<const ChunkedArray>(DataType(), std::vector<ArrayPointer>{})) {}

Column::Column(ArrayPointer array)
    : data_(std::make_shared<const ChunkedArray>(array->type, std::vector<ArrayPointer>{array})),
      rows_(0, array->length) {}

Column::Column(std::shared_ptr<const ChunkedArray> data, RowMap rows)
    : data_(std::move(data)), rows_(std::move(rows)) {}

std::int64_t Column::null_count() const {
  std::int64_t count = 0;
  for (std::int64_t row = 0; row < size(); ++row) count += is_null(row) ? 1 : 0;
  return count;
}

bool Column::is_null(std::int64_t row) const {
  check_row(row, size());
  const auto place = data_->locate(rows_[row]);
  return data_->chunks()[place.chunk]->is_null(place.row);
}

Value Column::value(std::int64_t row) const {
  check_row(row, size());
  const auto place = data_->locate(rows_[row]);
  return table::value_of(*data_->chunks()[place.chunk], place.row);
}

Column Column::slice(std::int64_t start, std::int64_t count) const {
  if (start < 0 || count < 0 || start > size() - count) {
    throw UsageError("a slice of " + std::to_string(count) + " rows from row " + std::to_string(start) +
                     " on does not lie in a column of " + std::to_string(size()) + " rows.");
  }
  return {data_, rows_.slice(start, count)};
}

Column Column::select(std::span<const std::int64_t> rows) const {
  for (const auto row : rows) check_row(row, size());
  return {data_, rows_.select(rows)};
}

ArrayPointer Column::flatten() const {
  return table::copy_ranges(type(), table::ranges_of(*data_, rows_, 0, size()));
}

namespace {

/// The files of several columns, or nothing when one of them lies in memory.
std::shared_ptr<const table::SourceFiles> joined_source_files(std::span<const Column> columns) {
  auto joined = std::make_shared<table::SourceFiles>();
  for (const auto& column : columns) {
    const auto& source_files = column.data()->source_files();
    if (!source_files) return nullptr;
    joined->parts.insert(joined->parts.end(), source_files->parts.begin(), source_files->parts.end());
  }
  return joined;
}

}  // namespace

Column Column::concatenate(std::span<const Column> columns) {
  if (columns.empty()) throw UsageError("there is no column to concatenate.");
  std::vector<ArrayPointer> chunks;
  bool whole = true;
  for (const auto& column : columns) {
    if (column.rows_.is_range() && column.size() == column.data_->size()) {
      chunks.insert(chunks.end(), column.data_->chunks().begin(), column.data_->chunks().end());
    } else {
      chunks.push_back(column.flatten());
      whole = false;
    }
  }
  auto data = std::make_shared<const ChunkedArray>(columns.front().type(), std::move(chunks),
                                                   whole ? joined_source_files(columns) : nullptr);
  const auto rows = data->size();
  return {std::move(data), RowMap(0, rows)};
}

void Column::check_elements() const {
  if (!type().is_list()) return;
  for (const auto& chunk : data_->chunks()) {
    if (chunk->children.front()->null_count == 0) continue;
    throw UsageError(
        "the lists of the column have nulls inside them, which a span cannot show. Use value(), "
        "or fill the nulls first.");
  }
}

}  // namespace lockstep
