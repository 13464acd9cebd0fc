#pragma once

#include <arrow/type_fwd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "datasets/arrow/stream_reader.hpp"

namespace lockstep::arrow_file {

// Conversions between our types, whose public headers do not include Arrow's, and Apache Arrow's.

/// Arrow's types whose values are stored as integers: integers, dates and times. Also float16, as bits.
template <typename Type>
concept StoredAsInteger = requires {
  typename Type::c_type;
}
&&std::is_integral_v<typename Type::c_type> && !std::is_same_v<typename Type::c_type, bool>;

/// A location in a file, for error messages.
class Location {
 public:
  Location(std::string file, std::string where) : file_(std::move(file)), where_(std::move(where)) {}
  /// A part of this location.
  Location within(const std::string& part) const { return {file_, where_ + ", " + part}; }
  const std::string& file() const noexcept { return file_; }
  /// Throws DataError: "'FILE' is no valid Arrow file: WHERE: WHAT."
  [[noreturn]] void fail(const std::string& what) const;

 private:
  std::string file_;
  std::string where_;
};

/// The type of the values after dictionaries are resolved, maps are lists of structs, and extension types are
/// their storage types. Throws DataError for unions, run-end encoding and list views.
DataType type_of(const arrow::DataType& type, const Location& location);
FileSchema schema_of(const arrow::Schema& schema, const Location& location);
std::shared_ptr<arrow::Schema> to_arrow(const std::vector<Field>& fields);

/// Whether values of both types are the same but for how Arrow stores them: the offsets of texts, bytes and
/// lists in 32 or 64 bits, and the unit of times of day, timestamps (with the same time zone) and durations;
/// at any depth.
bool differs_in_layout_only(const arrow::DataType& one, const arrow::DataType& other);

/// The type that values of both types fit: one of them if the other has nulls in its place, at any depth, and
/// structs with the fields of both. For columns of files that are loaded together (`in_files`) also the
/// floating type for integers beside it, and the wider of two types that differ in layout only. Null for
/// other pairs.
std::optional<DataType> unified(const DataType& one, const DataType& other, bool in_files = false);

/// The array with the type `type_of(...).arrow()`; copied only if a dictionary or view is resolved. Does not
/// verify the lengths of buffers.
ArrayPointer plain_array(const std::shared_ptr<arrow::ArrayData>& array, const Location& location);

/// The type with `change(part)` in place of each part that is neither a list nor a struct, at any depth.
DataType with_parts(const DataType& type, const std::function<DataType(const DataType&)>& change);

/// Whether Arrow's kernels convert these types: from nulls, between numbers, booleans and text, numbers and
/// text to decimals, dates and times from and to all types, and lists and structs of these. Not other numbers
/// from text (signs, infinities), and no struct with a field that the other has not.
bool has_cast(const DataType& from, const DataType& to);

/// The values as another type, by these kernels. Throws UsageError, with Arrow's reason, if a value does not
/// fit.
ArrayPointer cast(const ArrayPointer& array, const DataType& to);

/// `count` rows of a column beginning at `start`, like Column::flatten().
ArrayPointer rows_of(const Column& column, std::int64_t start, std::int64_t count);

/// Whether the column's rows are all rows of its data, in order.
bool is_whole(const Column& column);

/// Number of rows of a range of rows, beginning at `start`, that are in one chunk: rows_of() copies none of
/// them.
std::int64_t rows_in_chunk(const Column& column, std::int64_t start);

/// Bytes that the values of `count` rows beginning at `start` take in an array of their own. Reads only
/// offsets.
std::int64_t value_bytes(const Column& column, std::int64_t start, std::int64_t count);

using Columns = std::vector<std::pair<std::string, Column>>;
std::int64_t value_bytes(const Columns& columns, std::int64_t start, std::int64_t count);

/// The values of a piece of rows take no more memory than this, so that pieces can be copied and written one
/// after another, and text stays far below the 2^31 bytes of an array.
constexpr std::int64_t kPieceBytes = std::int64_t{32} << 20;
/// The most rows of a piece that is converted or copied in memory.
constexpr std::int64_t kPieceRows = 65'536;

/// Number of rows of the piece that begins at row `start`: at most `most`, and as many as kPieceBytes allow
/// by halving, but at least one. Depends on the values only.
std::int64_t piece_rows(const Columns& columns, std::int64_t start, std::int64_t most);

/// Calls `use(start, count)` for one piece after another of the columns' `rows` rows.
template <typename Use>
void each_piece(const Columns& columns, std::int64_t rows, std::int64_t most, const Use& use) {
  for (std::int64_t start = 0, count = 0; start < rows; start += count) {
    count = piece_rows(columns, start, std::min(most, rows - start));
    use(start, count);
  }
}

/// All rows of a column: its chunks, or slices of them, where the rows are a range; otherwise copies in
/// pieces of at most kPieceRows.
std::vector<table::Chunk> pieces_of(const Column& column);

/// The fields of a struct array without nulls.
std::vector<ArrayPointer> fields_of(const arrow::Array& structures);

}  // namespace lockstep::arrow_file
