#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "datasets/arrow/batch_writer.hpp"
#include "merge.hpp"

namespace lockstep {

/// Writes a shard of the result while it is computed: a file in Arrow's stream format, in record batches of
/// at most 1,000 rows, of which no more than about one is in memory. Neither in secret nor down to the disk:
/// for a folder that nobody else looks into, and a caller who does the rest. The bytes depend on the parts
/// alone.
class ShardBuilder {
 public:
  /// `columns` is what is known of the result so far.
  ShardBuilder(std::filesystem::path file, ResultColumns columns);

  /// Throws UsageError as ResultColumns::add(), Error for a file that cannot be written.
  void add(Columns part);
  /// Writes the rest, and returns the number of rows.
  std::uint64_t finish();

 private:
  void open();
  void close();
  void write_anew();
  void flush();
  void write(const ArrowDataset& rows);
  [[noreturn]] void fail() const;

  std::filesystem::path file_;
  ResultColumns columns_;
  std::vector<Columns> waiting_;
  std::int64_t waiting_rows_ = 0;
  std::size_t waiting_bytes_ = 0;
  std::ofstream stream_;
  std::unique_ptr<arrow_file::BatchWriter> writer_;
  std::uint64_t rows_ = 0;
};

}  // namespace lockstep
