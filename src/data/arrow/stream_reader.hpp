#pragma once

#include <string>
#include <vector>

#include "batch_reader.hpp"

namespace lockstep::arrow_file {

/// What a stream or a file held.
struct FileTable {
  FileSchema schema;
  /// The pieces of each column, one for each record batch.
  std::vector<std::vector<ArrayPointer>> columns;
  std::int64_t rows = 0;
};

/// Whether these bytes begin as an Arrow stream or an Arrow file does.
bool is_arrow(const Buffer& bytes) noexcept;

/// Reads Arrow's stream format or its file format (source: "Arrow Columnar Format", section on serialization
/// and interprocess communication). `name` is the file's, for errors. The columns are views of the bytes.
/// Throws DataError for whatever does not fit; `trusted` leaves the offsets unchecked.
FileTable read_arrow(const Buffer& bytes, const std::string& name, bool trusted);

}  // namespace lockstep::arrow_file
