#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/datasets/column.hpp"

namespace lockstep::arrow_file {

/// Takes the bytes of a file in their order.
using Sink = std::function<void(const void* data, std::size_t bytes)>;

/// Writes record batches into a file. What the sink throws comes out of the call that wrote.
class BatchWriter {
 public:
  virtual ~BatchWriter() = default;
  /// Writes a record batch: one array for each field, of its type, all with `rows` rows.
  virtual void write(std::span<const ArrayPointer> columns, std::int64_t rows) = 0;
  /// Writes the file's end.
  virtual void finish() = 0;
};

/// Arrow's stream format, uncompressed, so that it can be mapped.
std::unique_ptr<BatchWriter> stream_writer(Sink sink, const std::vector<Field>& fields,
                                           const std::map<std::string, std::string>& metadata);
/// Parquet, compressed by Snappy as Python's packages do it.
std::unique_ptr<BatchWriter> parquet_writer(Sink sink, const std::vector<Field>& fields,
                                            const std::map<std::string, std::string>& metadata);

}  // namespace lockstep::arrow_file
