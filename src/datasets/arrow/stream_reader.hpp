#pragma once

#include <arrow/type_fwd.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/datasets/column.hpp"

namespace lockstep::arrow_file {

/// The columns of a file, and the schema's metadata; `datasets` stores its features under "huggingface".
struct FileSchema {
  std::vector<Field> fields;
  std::map<std::string, std::string> metadata;
  /// As it is in the file, with the names of extension types.
  std::shared_ptr<arrow::Schema> arrow;
};

struct FileTable {
  FileSchema schema;
  /// The chunks of each column, one per record batch.
  std::vector<std::vector<table::Chunk>> columns;
  std::int64_t rows = 0;
};

/// Whether these bytes begin like an Arrow stream or an Arrow file.
bool is_arrow(const arrow::Buffer& bytes) noexcept;

/// Reads Arrow's stream format or its file format. `name` is the file's, for errors. The columns are views of
/// the bytes, except where buffers are compressed or misaligned. Throws DataError for invalid content, with
/// the record batch and, if possible, the column; with `trusted`, the lengths of buffers and the offsets are
/// never verified.
FileTable read_arrow(const std::shared_ptr<arrow::Buffer>& bytes, const std::string& name, bool trusted);

}  // namespace lockstep::arrow_file
