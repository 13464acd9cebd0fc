#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "flat_reader.hpp"
#include "lockstep/data/data_type.hpp"

namespace lockstep::arrow_file {

/// A column as a file describes it. Its type is the one that its values have; where a dictionary holds the
/// values, the file's batches hold numbers of the `index` type.
struct FileField {
  struct Dictionary {
    std::int64_t id;
    DataType index;
  };

  std::string name;
  DataType type;
  bool nullable = true;
  std::optional<Dictionary> dictionary;
  std::vector<FileField> children;
};

struct FileSchema {
  std::vector<FileField> fields;
  /// Texts that go with the schema; `datasets` writes its features under "huggingface".
  std::map<std::string, std::string> metadata;
};

/// Reads a Schema table (source: Arrow's Schema.fbs, version 5 of the metadata). Throws DataError, naming the
/// column, for types that are not supported.
FileSchema read_schema(const FlatTable& schema, const Place& place);

}  // namespace lockstep::arrow_file
