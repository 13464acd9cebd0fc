#pragma once

#include <arrow/type_fwd.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "lockstep/datasets/column.hpp"

namespace lockstep::arrow_file {

/// Receives the bytes of a file in order.
using Sink = std::function<void(const void* data, std::size_t bytes)>;

/// Writes record batches to a file. An exception of the sink is rethrown by the call that wrote.
class BatchWriter {
 public:
  virtual ~BatchWriter() = default;
  /// Writes a record batch: one array of `rows` rows per field, of the field's type.
  virtual void write(std::span<const ArrayPointer> columns, std::int64_t rows) = 0;
  /// Writes the end of the file.
  virtual void finish() = 0;
};

/// Arrow's stream format, uncompressed, so that the file can be mapped.
std::unique_ptr<BatchWriter> stream_writer(Sink sink, std::shared_ptr<arrow::Schema> schema);
/// Parquet, compressed with Snappy like that of Python's packages.
std::unique_ptr<BatchWriter> parquet_writer(Sink sink, std::shared_ptr<arrow::Schema> schema);

}  // namespace lockstep::arrow_file
