#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "datasets/arrow/batch_writer.hpp"
#include "lockstep/datasets/map.hpp"

namespace lockstep {

/// A batch's part of the result: the columns of the source that stay, and those of the function in their
/// place or behind. Throws UsageError, naming columns and lengths, when they do not fit together.
Columns merge_columns(const MapBatch& batch, Columns made, const std::vector<std::string>& removed);

/// The columns that all parts of a result have in common. Where one part has nothing but nulls (a batch
/// without a value, an empty list in each row) and another knows their type, that type is the result's, at
/// any depth: null beside float64, list<null> beside list<int64>.
class ResultColumns {
 public:
  /// What a column means: by `features` if it says so, by the source where the type is still the same, else
  /// by its type.
  ResultColumns(Features source, std::optional<Features> features);

  /// Takes a part in. True when the types that were known have changed by that. Throws UsageError, naming
  /// the column and both types, when names or types are others than those of the parts before.
  bool add(const std::vector<Field>& fields);
  bool add(const Columns& part);

  const std::vector<Field>& fields() const noexcept { return fields_; }
  /// A part as all parts are.
  Columns aligned(Columns part) const;
  /// Parts one below the other, as a table.
  ArrowDataset joined(std::vector<Columns> parts) const;

 private:
  Feature feature_of(const Field& field) const;

  Features source_;
  std::optional<Features> features_;
  bool known_ = false;
  std::vector<Field> fields_;
};

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
