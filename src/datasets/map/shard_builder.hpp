#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "datasets/arrow/batch_writer.hpp"
#include "datasets/map/result_columns.hpp"

namespace lockstep {

/// Writes a shard of the result while it is computed: a file in Arrow's stream format, in record batches of
/// at most 1,000 rows and 32 MiB of values (or one row), of which at most about one is in memory. The file is
/// neither written atomically nor flushed to disk: the folder must be private, and the caller does the rest.
/// The bytes depend only on the parts.
class ShardBuilder {
 public:
  /// `columns`: what is known of the result so far.
  ShardBuilder(std::filesystem::path file, ResultColumns columns);

  /// Throws UsageError like ResultColumns::add(), and Error if the file cannot be written.
  void add(Columns part);
  /// Writes the rest and returns the number of rows.
  std::uint64_t finish();

 private:
  void open();
  void close();
  void write_anew();
  void add_piece(Columns piece, std::int64_t rows);
  void flush();
  void write(const ArrowDataset& rows);
  [[noreturn]] void fail() const;

  std::filesystem::path file_;
  ResultColumns columns_;
  std::vector<Columns> waiting_;
  std::int64_t waiting_rows_ = 0;
  std::int64_t waiting_bytes_ = 0;
  std::ofstream stream_;
  std::unique_ptr<arrow_file::BatchWriter> writer_;
  std::uint64_t rows_ = 0;
};

}  // namespace lockstep
