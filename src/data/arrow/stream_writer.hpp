#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/array_data.hpp"

namespace lockstep::arrow_file {

/// Writes Arrow's stream format, uncompressed, with no dictionaries. The bytes go to a function, in order.
class StreamWriter {
 public:
  using Sink = std::function<void(const void* data, std::size_t bytes)>;

  /// Writes the schema.
  StreamWriter(Sink sink, const std::vector<Field>& fields,
               const std::map<std::string, std::string>& metadata);
  /// Writes a record batch: one array for each field, of its type, all with `rows` rows.
  void write(std::span<const ArrayPointer> columns, std::int64_t rows);
  /// Writes the mark of the end.
  void finish();

 private:
  void message(const std::string& description);

  Sink sink_;
};

}  // namespace lockstep::arrow_file
