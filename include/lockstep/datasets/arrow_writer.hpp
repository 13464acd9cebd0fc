#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "lockstep/datasets/arrow_dataset.hpp"

namespace lockstep {

/// Writes rows to a file in Arrow's stream format one after another, keeping at most one record batch in
/// memory (`batch_rows` rows, fewer if they take more than 32 MiB): the counterpart of Python's
/// `datasets.arrow_writer.ArrowWriter`. `datasets` reads the file too.
///
///     ArrowWriter writer("tokens.arrow");
///     for (const auto& document : documents) writer.write(Value::Fields{{"text", document}});
///     writer.finalize();
///     const auto data = ArrowDataset::load("tokens.arrow");
///
/// Without `features` the types are those of the first record batch, inferred as by from_rows. The file
/// appears with finalize(); without it, no file remains. *Local*; one thread at a time.
class ArrowWriter {
 public:
  /// Throws Error if the file cannot be written, UsageError if batch_rows is below 1.
  explicit ArrowWriter(const std::filesystem::path& file, std::optional<Features> features = std::nullopt,
                       std::int64_t batch_rows = 1000);
  ~ArrowWriter();
  ArrowWriter(const ArrowWriter&) = delete;
  ArrowWriter& operator=(const ArrowWriter&) = delete;

  /// Writes a row: a structure. Throws UsageError, naming the row, if it does not fit the types or has other
  /// fields; at the latest when its record batch is written.
  void write(Value row);
  /// Writes the rows of a data set with the same columns.
  void write_batch(const ArrowDataset& rows);
  /// Writes the remaining rows, and returns the number of rows. Throws UsageError if there were neither rows
  /// nor features.
  std::int64_t finalize();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
