#include "lockstep/datasets/column.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>

#include "datasets/arrow/cast.hpp"
#include "half.hpp"
#include "lockstep/core/error.hpp"
#include "source_files.hpp"
#include "take.hpp"

namespace lockstep {
namespace {

[[noreturn]] void fail(const FileLocation& place, const std::string& what) {
  throw DataError(fmt::format("'{}' is no valid Arrow file: record batch {}, column '{}': {}.", *place.file,
                              place.record_batch, place.column.substr(0, 100), what));
}

template <typename Offset>
void check_offsets(const ArrayData& array, std::int64_t reach, const FileLocation& place) {
  const auto* offsets = reinterpret_cast<const Offset*>(array.offsets.data);
  if (offsets[0] < 0) fail(place, fmt::format("its first offset is {}", offsets[0]));
  for (std::int64_t row = 0; row < array.length; ++row) {
    if (offsets[row + 1] >= offsets[row]) continue;
    fail(place,
         fmt::format("row {}: its offsets go from {} back to {}", row, offsets[row], offsets[row + 1]));
  }
  if (offsets[array.length] > reach) {
    fail(place, fmt::format("its offsets lead to {}, but there are only {} bytes or elements",
                            offsets[array.length], reach));
  }
}

/// Of the array and all inside it.
void check_all_offsets(const ArrayData& array, const FileLocation& place) {
  const auto kind = array.type.kind();
  const bool lists = array.type.is_list();
  const auto reach = lists ? array.children.front()->length : static_cast<std::int64_t>(array.values.bytes);
  if (array.length > 0 && array.offsets.data != nullptr) {
    const bool large =
        kind == TypeKind::large_utf8 || kind == TypeKind::large_binary || kind == TypeKind::large_list;
    large ? check_offsets<std::int64_t>(array, reach, place)
          : check_offsets<std::int32_t>(array, reach, place);
  }
  for (const auto& child : array.children) check_all_offsets(*child, place);
}

}  // namespace

RowMap RowMap::slice(std::int64_t start, std::int64_t count) const {
  if (rows_ == nullptr) return {start_ + start, count};
  const auto begin = rows_->begin() + start;
  return RowMap(std::make_shared<const std::vector<std::int64_t>>(begin, begin + count));
}

RowMap RowMap::select(std::span<const std::int64_t> rows) const {
  bool range = true;
  for (std::size_t place = 1; place < rows.size() && range; ++place)
    range = rows[place] == rows[place - 1] + 1;
  if (range && (rows_ == nullptr || rows.empty())) {
    return {rows.empty() ? 0 : start_ + rows.front(), static_cast<std::int64_t>(rows.size())};
  }
  std::vector<std::int64_t> mapped;
  mapped.reserve(rows.size());
  for (const auto row : rows) mapped.push_back((*this)[row]);
  return RowMap(std::make_shared<const std::vector<std::int64_t>>(std::move(mapped)));
}

ChunkedArray::ChunkedArray(DataType type, std::vector<ArrayPointer> chunks,
                           std::shared_ptr<const table::SourceFiles> source_files)
    : type_(std::move(type)), source_files_(std::move(source_files)) {
  starts_.push_back(0);
  for (auto& chunk : chunks) {
    if (!(chunk->type == type_)) {
      throw UsageError("the pieces of a column must have one type, but came " + type_.text() + " and " +
                       chunk->type.text() + ".");
    }
    if (chunk->length == 0) continue;
    starts_.push_back(starts_.back() + chunk->length);
    const auto& values = type_.is_list() ? chunk->children.front()->values : chunk->values;
    raw_.push_back({chunk->validity.data, chunk->offsets.data, values.data});
    chunks_.push_back(std::move(chunk));
  }
  const auto is_unchecked = [](const ArrayPointer& chunk) { return chunk->unchecked != nullptr; };
  if (std::any_of(chunks_.begin(), chunks_.end(), is_unchecked)) {
    unchecked_ = std::make_unique<std::atomic<bool>[]>(chunks_.size());
    std::transform(chunks_.begin(), chunks_.end(), unchecked_.get(), is_unchecked);
  }
  index_blocks();
}

void ChunkedArray::check(std::size_t chunk) const {
  check_all_offsets(*chunks_[chunk], *chunks_[chunk]->unchecked);
  unchecked_[chunk].store(false, std::memory_order_relaxed);
}

const std::string& ChunkedArray::memory_hash(const std::function<std::string()>& find) const {
  std::call_once(hashed_, [&] { memory_hash_ = find(); });
  return memory_hash_;
}

void ChunkedArray::index_blocks() {
  const auto mean = size() / std::max<std::int64_t>(1, std::ssize(chunks_));
  shift_ = std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(1, mean))) - 1;
  const auto blocks = static_cast<std::size_t>((size() >> shift_) + 1);
  first_.reserve(blocks);
  std::size_t chunk = 0;
  for (std::size_t block = 0; block < blocks; ++block) {
    const auto row = static_cast<std::int64_t>(block) << shift_;
    while (chunk < chunks_.size() && starts_[chunk + 1] <= row) ++chunk;
    first_.push_back(chunk);
  }
}

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
