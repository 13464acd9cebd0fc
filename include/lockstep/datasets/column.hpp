#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/datasets/data_type.hpp"
#include "lockstep/datasets/value.hpp"

namespace arrow {
class Array;
}

namespace lockstep {

/// Apache Arrow's array, of which columns consist. Only code that accesses it needs Arrow's headers.
using ArrayPointer = std::shared_ptr<arrow::Array>;

/// The visible rows of a table and their order: a range, or a list of row numbers. Cheap to copy.
class RowMap {
 public:
  RowMap() = default;
  /// `count` rows beginning at `start`.
  RowMap(std::int64_t start, std::int64_t count) : start_(start), count_(count) {}
  /// The given rows, which the caller has checked.
  explicit RowMap(std::shared_ptr<const std::vector<std::int64_t>> rows)
      : count_(static_cast<std::int64_t>(rows->size())), rows_(std::move(rows)) {}

  std::int64_t size() const noexcept { return count_; }
  /// The row of the table for row `row`, 0 <= row < size().
  std::int64_t operator[](std::int64_t row) const noexcept {
    return rows_ ? (*rows_)[static_cast<std::size_t>(row)] : start_ + row;
  }
  /// Whether this is a contiguous range of rows in order.
  bool is_range() const noexcept { return rows_ == nullptr; }
  /// Whether both are the same range, or the same list in memory.
  bool is_same(const RowMap& other) const noexcept {
    return start_ == other.start_ && count_ == other.count_ && rows_ == other.rows_;
  }
  /// `count` of these rows, beginning at `start`.
  RowMap slice(std::int64_t start, std::int64_t count) const;
  /// The given rows of these rows.
  RowMap select(std::span<const std::int64_t> rows) const;

 private:
  std::int64_t start_ = 0;
  std::int64_t count_ = 0;
  std::shared_ptr<const std::vector<std::int64_t>> rows_;
};

namespace table {
struct SourceFiles;

/// The location of a chunk in a file, for errors.
struct FileLocation {
  std::shared_ptr<const std::string> file;
  std::int64_t record_batch = 0;
  std::string column;
};

/// A chunk of a column.
struct Chunk {
  ArrayPointer array;
  /// Set for a mapped chunk whose lengths and offsets were not verified when the file was opened.
  /// ColumnData::locate verifies them on first access, so that opening a file reads only its metadata.
  std::shared_ptr<const FileLocation> unchecked = nullptr;
};
}  // namespace table

/// A sequence of Arrow arrays of one type: a column as stored in the record batches of one or more files.
/// Dictionaries and views are resolved. Immutable. Finding the chunk of a row takes constant time if chunks
/// have similar lengths.
class ColumnData {
 public:
  /// The buffers of a chunk that the accessors need. For a list, `values` are its elements' values.
  struct Raw {
    const std::uint8_t* validity;
    const std::uint8_t* offsets;
    const std::uint8_t* values;
    /// The column's row that corresponds to the beginning of the buffers.
    std::int64_t zero;
  };
  struct Location {
    std::size_t chunk;
    /// Row in the chunk's buffers, which may begin before the chunk (arrow::Array::offset).
    std::int64_t row;
  };

  /// Throws UsageError if a chunk has another type. `source_files` are the files that they are mapped from,
  /// if any.
  ColumnData(DataType type, std::vector<table::Chunk> chunks,
             std::shared_ptr<const table::SourceFiles> source_files = nullptr);

  const DataType& type() const noexcept { return type_; }
  std::int64_t size() const noexcept { return starts_.back(); }
  /// None of the chunks is empty.
  const std::vector<table::Chunk>& chunks() const noexcept { return chunks_; }
  /// Null for data in memory.
  const std::shared_ptr<const table::SourceFiles>& source_files() const noexcept { return source_files_; }
  /// The hash of data in memory. The first call computes it with `find`; data sets with other rows of the
  /// same data share it. Any thread.
  const std::string& memory_hash(const std::function<std::string()>& find) const;
  /// The first row of a chunk; for `chunks().size()`, the number of rows.
  std::int64_t start(std::size_t chunk) const noexcept { return starts_[chunk]; }
  const Raw& raw(std::size_t chunk) const noexcept { return raw_[chunk]; }
  /// The position of row `row`, 0 <= row < size(). A chunk is verified on the first access; throws DataError,
  /// naming the location in the file, if it is damaged.
  Location locate(std::int64_t row) const {
    auto chunk = first_[static_cast<std::size_t>(row >> shift_)];
    while (starts_[chunk + 1] <= row) ++chunk;
    if (unchecked_ && unchecked_[chunk].load(std::memory_order_relaxed)) check(chunk);
    return {chunk, row - raw_[chunk].zero};
  }

 private:
  void index_blocks();
  void check(std::size_t chunk) const;

  DataType type_;
  std::vector<table::Chunk> chunks_;
  std::vector<Raw> raw_;
  /// The first row of each chunk, and the number of rows.
  std::vector<std::int64_t> starts_;
  /// For each block of 2^shift_ rows, the chunk in which it begins.
  std::vector<std::size_t> first_;
  int shift_ = 0;
  /// Whether each chunk still has to be verified; null if none has. Two threads may verify the same chunk.
  std::unique_ptr<std::atomic<bool>[]> unchecked_;
  std::shared_ptr<const table::SourceFiles> source_files_;
  mutable std::once_flag hashed_;
  mutable std::string memory_hash_;
};

namespace table {

[[noreturn]] void fail_row(std::int64_t row, std::int64_t size);
[[noreturn]] void fail_null(std::int64_t row);
[[noreturn]] void fail_type(const DataType& type, const char* asked);

/// How a C++ type is read from a column. `reads` tells from which columns.
template <typename T, typename = void>
struct Reader;

bool stores(const DataType& type, std::size_t bytes, bool floating, bool is_signed) noexcept;

template <typename T>
struct Reader<T, std::enable_if_t<std::is_arithmetic_v<T> && !std::is_same_v<T, bool>>> {
  static bool reads(const DataType& type) noexcept {
    return stores(type, sizeof(T), std::is_floating_point_v<T>, std::is_signed_v<T>);
  }
  static T read(const DataType&, const ColumnData::Raw& raw, std::int64_t row) noexcept {
    T value;
    std::memcpy(&value, raw.values + row * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    return value;
  }
};

template <>
struct Reader<bool> {
  static bool reads(const DataType& type) noexcept { return type.kind() == TypeKind::boolean; }
  static bool read(const DataType&, const ColumnData::Raw& raw, std::int64_t row) noexcept {
    return (raw.values[row >> 3] >> (row & 7) & 1) != 0;
  }
};

/// Begin and end of a row's text or elements.
inline std::pair<std::int64_t, std::int64_t> extent(const DataType& type, const ColumnData::Raw& raw,
                                                    std::int64_t row) noexcept {
  if (type.width() != 0) return {row * type.width(), (row + 1) * type.width()};
  if (raw.offsets == nullptr) return {0, 0};
  const auto kind = type.kind();
  if (kind == TypeKind::utf8 || kind == TypeKind::binary || kind == TypeKind::list) {
    const auto* offsets = reinterpret_cast<const std::int32_t*>(raw.offsets);
    return {offsets[row], offsets[row + 1]};
  }
  const auto* offsets = reinterpret_cast<const std::int64_t*>(raw.offsets);
  return {offsets[row], offsets[row + 1]};
}

template <>
struct Reader<std::string_view> {
  static bool reads(const DataType& type) noexcept {
    return type.is_text_or_binary() || type.kind() == TypeKind::fixed_size_binary;
  }
  static std::string_view read(const DataType& type, const ColumnData::Raw& raw, std::int64_t row) noexcept {
    const auto [begin, end] = extent(type, raw, row);
    return {reinterpret_cast<const char*>(raw.values) + begin, static_cast<std::size_t>(end - begin)};
  }
};

template <>
struct Reader<std::string> : Reader<std::string_view> {
  static std::string read(const DataType& type, const ColumnData::Raw& raw, std::int64_t row) {
    return std::string(Reader<std::string_view>::read(type, raw, row));
  }
};

template <typename T>
struct Reader<std::span<const T>> {
  static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>, "spans are of numbers");
  static bool reads(const DataType& type) noexcept {
    return type.is_list() && Reader<T>::reads(type.element());
  }
  static std::span<const T> read(const DataType& type, const ColumnData::Raw& raw,
                                 std::int64_t row) noexcept {
    const auto [begin, end] = extent(type, raw, row);
    return {reinterpret_cast<const T*>(raw.values) + begin, static_cast<std::size_t>(end - begin)};
  }
};

template <typename T>
struct Reader<std::vector<T>> : Reader<std::span<const T>> {
  static std::vector<T> read(const DataType& type, const ColumnData::Raw& raw, std::int64_t row) {
    const auto found = Reader<std::span<const T>>::read(type, raw, row);
    return {found.begin(), found.end()};
  }
};

}  // namespace table

/// A column's values as C++ values of type T: see Column::view. Keeps its data alive. Reading a row takes
/// well under a microsecond, in any order of rows. Several threads may use one view.
template <typename T>
class ColumnView {
 public:
  ColumnView(std::shared_ptr<const ColumnData> data, RowMap rows)
      : data_(std::move(data)), rows_(std::move(rows)) {}

  std::int64_t size() const noexcept { return rows_.size(); }

  /// The value of a row. Throws UsageError for a row out of range and for a null (use is_null or get).
  T operator[](std::int64_t row) const {
    const auto location = locate(row);
    const auto& raw = data_->raw(location.chunk);
    if (null_at(raw, location.row)) table::fail_null(row);
    return table::Reader<T>::read(data_->type(), raw, location.row);
  }

  /// The value, or nothing for a null. Throws UsageError for a row out of range.
  std::optional<T> get(std::int64_t row) const {
    const auto location = locate(row);
    const auto& raw = data_->raw(location.chunk);
    if (null_at(raw, location.row)) return std::nullopt;
    return table::Reader<T>::read(data_->type(), raw, location.row);
  }

  /// Throws UsageError for a row out of range.
  bool is_null(std::int64_t row) const {
    const auto location = locate(row);
    return null_at(data_->raw(location.chunk), location.row);
  }

  /// All values in order. Throws UsageError for a null.
  std::vector<T> to_vector() const {
    std::vector<T> values;
    values.reserve(static_cast<std::size_t>(size()));
    for (std::int64_t row = 0; row < size(); ++row) values.push_back((*this)[row]);
    return values;
  }

 private:
  ColumnData::Location locate(std::int64_t row) const {
    if (row < 0 || row >= rows_.size()) table::fail_row(row, rows_.size());
    return data_->locate(rows_[row]);
  }
  static bool null_at(const ColumnData::Raw& raw, std::int64_t row) noexcept {
    return raw.validity != nullptr && (raw.validity[row >> 3] >> (row & 7) & 1) == 0;
  }

  std::shared_ptr<const ColumnData> data_;
  RowMap rows_;
};

/// A column: immutable values of one type, possibly with nulls, shared by its copies. Created by
/// ColumnBuilder or make_column, or taken from an ArrowDataset. Everything is *Local*; several threads may
/// read one object.
class Column {
 public:
  /// No rows, of the null type.
  Column();
  /// Shares an Arrow array. Throws DataError for an unsupported type.
  explicit Column(const ArrayPointer& array);
  /// All rows of the data.
  explicit Column(std::shared_ptr<const ColumnData> data);
  /// `rows` must be within `data`; not checked.
  Column(std::shared_ptr<const ColumnData> data, RowMap rows);

  const DataType& type() const noexcept { return data_->type(); }
  std::int64_t size() const noexcept { return rows_.size(); }
  /// Counts the nulls, in one pass over the rows.
  std::int64_t null_count() const;
  /// Whether any lists of the underlying data contain nulls, including lists of rows that are not visible
  /// here.
  bool has_null_elements() const;

  /// Throws UsageError for a row out of range.
  bool is_null(std::int64_t row) const;
  /// The value of a row of any type; takes about a hundred nanoseconds, more for values that own memory.
  Value value(std::int64_t row) const;

  /// Typed access. T and the column types that it reads:
  ///
  ///   std::int8_t ... std::int64_t, std::uint8_t ... std::uint64_t, float, double: the same width and sign;
  ///       std::int32_t also date32 and time32, std::int64_t also date64, time64, timestamps and durations;
  ///       std::uint16_t also float16 (its bits)
  ///   bool: booleans
  ///   std::string_view (valid as long as the data), std::string: text and binary of all kinds
  ///   std::span<const N> (valid as long as the data), std::vector<N>: lists of all kinds of such numbers
  ///
  /// Throws UsageError, naming both types, for another type; also for lists that contain nulls, which a span
  /// cannot represent.
  template <typename T>
  ColumnView<T> view() const {
    if (!table::Reader<T>::reads(type())) table::fail_type(type(), name_of<T>());
    check_elements();
    return {data_, rows_};
  }

  /// The given rows as a column. Copies no values. Throws UsageError for a row out of range.
  Column slice(std::int64_t start, std::int64_t count) const;
  Column select(std::span<const std::int64_t> rows) const;
  /// The rows as one array; copied unless they are a single chunk in order. Throws UsageError if their text
  /// or lists exceed 2^31 - 1 bytes or elements, except for the large types.
  ArrayPointer flatten() const;
  /// Concatenates columns of one type. Ranges of rows are not copied; other rows are, into chunks of at most
  /// 65,536 rows and 32 MiB of values (at least one row). Throws UsageError for different types or no column.
  static Column concatenate(std::span<const Column> columns);

  const std::shared_ptr<const ColumnData>& data() const noexcept { return data_; }
  const RowMap& rows() const noexcept { return rows_; }

 private:
  template <typename T>
  static const char* name_of() noexcept {
    if constexpr (std::is_same_v<T, bool>) {
      return "bool";
    } else if constexpr (std::is_arithmetic_v<T>) {
      return std::is_floating_point_v<T> ? (sizeof(T) == 4 ? "float" : "double")
                                         : (std::is_signed_v<T> ? "a signed integer of that width"
                                                                : "an unsigned integer of that width");
    } else if constexpr (std::is_convertible_v<T, std::string_view>) {
      return "std::string_view";
    } else {
      return "a span of numbers of that width";
    }
  }
  void check_elements() const;

  std::shared_ptr<const ColumnData> data_;
  RowMap rows_;
};

}  // namespace lockstep
