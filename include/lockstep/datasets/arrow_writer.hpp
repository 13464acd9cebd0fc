#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "lockstep/datasets/arrow_dataset.hpp"

namespace lockstep {

/// Writes rows into a file of Arrow's stream format as they come, with no more than a record batch of them in
/// memory: what `datasets.arrow_writer.ArrowWriter` is in Python, which reads the file too.
///
///     ArrowWriter writer("tokens.arrow");
///     for (const auto& document : documents) writer.write(Value::Fields{{"text", document}});
///     writer.finalize();
///     const auto data = ArrowDataset::load("tokens.arrow");
///
/// Without `features` the types are those of the first record batch, found as from_rows finds them. The file
/// appears with finalize(); without it nothing stays. *Local*; one thread at a time.
class ArrowWriter {
 public:
  /// Throws Error for a file that cannot be written, UsageError for a record batch of less than a row.
  explicit ArrowWriter(const std::filesystem::path& file, std::optional<Features> features = std::nullopt,
                       std::int64_t batch_rows = 1000);
  ~ArrowWriter();
  ArrowWriter(const ArrowWriter&) = delete;
  ArrowWriter& operator=(const ArrowWriter&) = delete;

  /// A row: a structure. Throws UsageError, naming the row, for what does not fit the types; with the record
  /// batch at the latest.
  void write(Value row);
  /// The rows of a data set with the same columns.
  void write_batch(const ArrowDataset& rows);
  /// Writes the rest, and returns the number of rows. Throws UsageError when there was neither a row nor
  /// features.
  std::int64_t finalize();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
