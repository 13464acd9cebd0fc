#pragma once

#include <arrow/type_fwd.h>

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "stream_reader.hpp"

namespace lockstep::arrow_file {

// Between our types, which public headers show without Arrow's, and Apache Arrow's.

/// Arrow's types whose values lie as whole numbers: integers, days and times. Also float16, by its bits.
template <typename Type>
concept StoredAsInteger = requires {
  typename Type::c_type;
}
&&std::is_integral_v<typename Type::c_type> && !std::is_same_v<typename Type::c_type, bool>;

/// Where in a file something is, for error texts.
class Location {
 public:
  Location(std::string file, std::string where) : file_(std::move(file)), where_(std::move(where)) {}
  /// A part of this place.
  Location within(const std::string& part) const { return {file_, where_ + ", " + part}; }
  const std::string& file() const noexcept { return file_; }
  /// Throws DataError: "'FILE' is no valid Arrow file: WHERE: WHAT."
  [[noreturn]] void fail(const std::string& what) const;

 private:
  std::string file_;
  std::string where_;
};

/// The type that the values have once dictionaries are resolved, maps are lists of structures, and extensions
/// are what they are stored as. Throws DataError for unions, run-end encoding and views of lists.
DataType type_of(const arrow::DataType& type, const Location& place);
FileSchema schema_of(const arrow::Schema& schema, const Location& place);
std::shared_ptr<arrow::Schema> to_arrow(const std::vector<Field>& fields,
                                        const std::map<std::string, std::string>& metadata);

/// The type that values of both have a place in: one of them where the other has nulls instead, at any depth,
/// and structures with the fields of both. Nothing for other pairs.
std::optional<DataType> unified(const DataType& one, const DataType& other);

/// The memory that the array's buffers take.
std::size_t bytes_of(const arrow::Array& array);

/// The array with the type `type_of(...).arrow()`; copied only where a dictionary or view is resolved.
/// Whether its buffers are as long as they should be is not looked at.
ArrayPointer plain_array(const std::shared_ptr<arrow::ArrayData>& array, const Location& place);

/// The values as another type, by Arrow's kernels: between numbers, from booleans and integers to text,
/// between text and binary, and lists of these. Null for any other pair of types, and where a value does not
/// fit exactly: what is to become of it, or its error, is the caller's.
ArrayPointer cast(const ArrayPointer& array, const DataType& from, const DataType& to);

/// `count` rows of a column from `start` on, as Column::flatten().
ArrayPointer rows_of(const Column& column, std::int64_t start, std::int64_t count);

/// The fields of an array of structures without nulls.
std::vector<ArrayPointer> fields_of(const arrow::Array& structures);

}  // namespace lockstep::arrow_file
