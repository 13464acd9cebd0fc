#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "datasets/arrow/batch_writer.hpp"
#include "lockstep/datasets/map.hpp"

namespace lockstep {

/// A batch's part of the result: the source's kept columns, with the function's columns replacing them or
/// after them. Throws UsageError, with columns and lengths, if they do not match.
Columns merge_columns(const MapBatch& batch, Columns made, const std::vector<std::string>& removed);

/// The columns that all parts of a result have. If a column has only nulls in one part (a batch without
/// values, an empty list in each row) and a type in another, that type is the result's, at any depth: null
/// beside float64, list<null> beside list<int64>.
class ResultColumns {
 public:
  /// The feature of a column is that of `features` if it has one, that of the source if the type is
  /// unchanged, and otherwise that of its type.
  ResultColumns(Features source, std::optional<Features> features);

  /// Adds a part. Returns true if this changed the known types. Throws UsageError, with the column and both
  /// types, if names or types differ from earlier parts.
  bool add(const std::vector<Field>& fields);
  bool add(const Columns& part);
  /// After all parts: a column with only nulls in all of them keeps the type that it has in the source.
  void take_types_for_nulls();

  const std::vector<Field>& fields() const noexcept { return fields_; }
  /// A part, converted to the types of the result.
  Columns aligned(Columns part) const;
  /// Parts concatenated into a data set.
  ArrowDataset joined(std::vector<Columns> parts) const;

 private:
  Feature feature_of(const Field& field) const;

  Features source_;
  std::optional<Features> features_;
  bool known_ = false;
  std::vector<Field> fields_;
};

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
