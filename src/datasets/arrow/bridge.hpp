#pragma once

#include <arrow/type_fwd.h>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "stream_reader.hpp"

namespace lockstep::arrow_file {

// Between our arrays, which public headers show without Arrow's, and Apache Arrow's: both follow the same
// layout, so buffers change hands without a copy.

/// Where in a file something is, for error texts.
class Location {
 public:
  Location(std::string file, std::string where) : file_(std::move(file)), where_(std::move(where)) {}
  /// The same file, another place in it.
  Location at(std::string where) const { return {file_, std::move(where)}; }
  /// A part of this place.
  Location within(const std::string& part) const { return {file_, where_ + ", " + part}; }
  const std::string& file() const noexcept { return file_; }
  const std::string& where() const noexcept { return where_; }
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

/// The array's buffers, copied only where a bitmap begins within a byte, or a dictionary or view is resolved.
/// Throws DataError where a buffer is shorter than the rows demand; offsets are left to ChunkedArray::locate.
std::shared_ptr<ArrayData> from_arrow(const std::shared_ptr<arrow::ArrayData>& array, const Location& place);

std::shared_ptr<arrow::DataType> to_arrow(const DataType& type);
std::shared_ptr<arrow::Schema> to_arrow(const std::vector<Field>& fields,
                                        const std::map<std::string, std::string>& metadata);
std::shared_ptr<arrow::ArrayData> to_arrow(const ArrayPointer& array);
std::shared_ptr<arrow::RecordBatch> to_arrow(const std::shared_ptr<arrow::Schema>& schema,
                                             std::span<const ArrayPointer> columns, std::int64_t rows);

/// The bytes as a buffer of Arrow's, which keeps their owner.
std::shared_ptr<arrow::Buffer> to_arrow(const Buffer& bytes);

}  // namespace lockstep::arrow_file
