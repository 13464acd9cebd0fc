#pragma once

#include <arrow/type_fwd.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/datasets/column.hpp"

namespace lockstep::arrow_file {

/// The columns of a file, with the texts that go with them; `datasets` writes its features under
/// "huggingface".
struct FileSchema {
  std::vector<Field> fields;
  std::map<std::string, std::string> metadata;
};

struct FileTable {
  FileSchema schema;
  /// The pieces of each column, one for each record batch.
  std::vector<std::vector<table::Chunk>> columns;
  std::int64_t rows = 0;
};

/// Whether these bytes begin as an Arrow stream or an Arrow file does.
bool is_arrow(const arrow::Buffer& bytes) noexcept;

/// Reads Arrow's stream format or its file format. `name` is the file's, for errors. The columns are views of
/// the bytes, but where buffers are compressed or lie on wrong addresses. Throws DataError, naming the record
/// batch and, where it is one's fault, the column, for whatever does not fit; `trusted` leaves the lengths of
/// buffers and the offsets unchecked for good.
FileTable read_arrow(const std::shared_ptr<arrow::Buffer>& bytes, const std::string& name, bool trusted);

}  // namespace lockstep::arrow_file
