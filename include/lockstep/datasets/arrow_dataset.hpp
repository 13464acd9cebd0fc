#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/datasets/column.hpp"
#include "lockstep/datasets/features.hpp"

/// Of Arrow's C stream interface (arrow/c/abi.h).
struct ArrowArrayStream;

namespace lockstep {

class ArrowDataset;

/// How comma-separated values are read.
struct CsvOptions {
  /// Between the cells of a row.
  char delimiter = ',';
  /// Around cells that hold delimiters, quotes (doubled) or line ends.
  char quote = '"';
  /// Whether the first row names the columns. Without, they are "0", "1", ... unless column_names is set.
  bool header = true;
  /// The columns' names, instead of the first row's.
  std::vector<std::string> column_names = {};
  /// Cells that are null, when not quoted: by default those of pandas.
  std::vector<std::string> null_values = {"",     "#N/A",   "#N/A N/A", "#NA",  "-1.#IND", "-1.#QNAN", "-NaN",
                                          "-nan", "1.#IND", "1.#QNAN",  "<NA>", "N/A",     "NA",       "NULL",
                                          "NaN",  "None",   "n/a",      "nan",  "null"};
};

/// What a file is, where its name does not tell.
enum class FileFormat : std::uint8_t {
  automatic,
  arrow,
  csv,
  json,
  text,
  parquet,
  /// A tar file of samples: for IterableDataset alone.
  webdataset
};

/// How files become a data set.
struct LoadOptions {
  /// By the name's ending (.arrow, .csv, .tsv, .json, .jsonl, .ndjson, .txt, .parquet; behind the last four
  /// and .csv and .tsv also .gz or .zst; .tar for streams) and, for others, by the first bytes.
  FileFormat format = FileFormat::automatic;
  /// The columns to make: types are converted as by ArrowDataset::cast. By default as found.
  std::optional<Features> features = std::nullopt;
  CsvOptions csv = {};
  /// The only columns to load, in their order; by default all. Parquet's others are not even read.
  std::vector<std::string> columns = {};
  /// Leaves out the check of a record batch's buffers that comes with the first look at one of its rows. Only
  /// for files that nobody but you could have written: a damaged one can crash the process.
  bool trusted = false;
};

/// One row of a data set. Holds the data set's columns alive.
class Row {
 public:
  /// The value of a column. Throws UsageError, naming the columns, for one that there is not.
  Value operator[](std::string_view column) const;
  /// The same, typed as by Column::view; throws as that does, and for a null.
  template <typename T>
  T get(std::string_view column) const;
  /// The row's number in its data set.
  std::int64_t index() const noexcept { return index_; }
  /// All of it: a structure with the columns as fields.
  Value value() const;

 private:
  friend class ArrowDataset;
  Row(const ArrowDataset& dataset, std::int64_t index);
  const Column& column(std::string_view name) const;

  std::shared_ptr<const void> owner_;
  const std::vector<std::pair<std::string, Column>>* columns_;
  std::int64_t index_;
};

/// A share of rows: a number of them, or a fraction of all.
class SplitSize {
 public:
  SplitSize(double fraction) : fraction_(fraction) {}
  SplitSize(int rows) : rows_(rows) {}
  SplitSize(std::int64_t rows) : rows_(rows) {}
  std::optional<std::int64_t> rows() const noexcept { return rows_; }
  double fraction() const noexcept { return fraction_; }

 private:
  std::optional<std::int64_t> rows_;
  double fraction_ = 0;
};

/// How train_test_split divides.
struct SplitOptions {
  /// A fraction counts ceil(fraction * rows) test rows. Without both, 0.25.
  std::optional<SplitSize> test_size = std::nullopt;
  /// A fraction counts floor(fraction * rows) training rows; by default the rest.
  std::optional<SplitSize> train_size = std::nullopt;
  bool shuffle = true;
  std::uint64_t seed = 0;
  /// A ClassLabel column whose classes both parts are to have in the same shares.
  std::string stratify_by_column = {};
};

/// Where nulls go when rows are sorted.
enum class NullPlacement : std::uint8_t { at_end, at_start };

/// One of the columns that rows are sorted by.
struct SortKey {
  std::string column = {};
  bool descending = false;
};

/// When interleaving ends.
enum class StoppingStrategy : std::uint8_t {
  /// As soon as one data set has given its last row.
  first_exhausted,
  /// When each has given its last row; the shorter ones begin again.
  all_exhausted,
  /// When each has given its last row; the shorter ones drop out.
  all_exhausted_without_replacement,
};

/// What save_to_disk may be told.
struct SaveOptions {
  /// Files to divide the rows among, 0: one for each 500 MB.
  std::int64_t num_shards = 0;
  /// Rows a record batch; `datasets` writes at most 1000.
  std::int64_t batch_rows = 1000;
};

/// Rows of named columns, for the most part lying in mapped files: what `datasets.Dataset` is in Python, with
/// the same files and, for the same seed, the same rows.
///
///     auto data = ArrowDataset::load("reviews.jsonl").shuffle(42);
///     auto parts = data.train_test_split({.test_size = 0.1, .seed = 7});
///     auto labels = parts.test.column<std::int64_t>("label");
///     for (std::int64_t row = 0; row < labels.size(); ++row) count(labels[row]);
///
/// It is a value that never changes: every operation gives another one. Copies share everything. Operations
/// on rows change a list of row numbers only; flatten_indices() writes the rows anew. Everything is *Local*;
/// several threads may use one object.
///
/// Errors: UsageError for a wrong name, row, type or option; DataError for files that cannot be read or that
/// contradict themselves, naming the file and the place in it; Error for files that cannot be written.
class ArrowDataset {
 public:
  /// No columns and no rows.
  ArrowDataset();

  // ---- from files and memory --------------------------------------------------------------------------

  /// A file, a pattern of files ("part-*.jsonl", "part-{00..31}.csv"), or a folder that save_to_disk (of
  /// Python too) has written. For a folder of several splits (a DatasetDict) see DatasetDict::load. Arrow
  /// files are mapped, not read: their memory is the system's page cache, which the processes of a host
  /// share. Other files, if they are compressed or have 8 MiB and more, are turned into Arrow files first,
  /// once for all processes: these lie in the cache folder (LOCKSTEP_CACHE, docs/datasets.md), and are found
  /// there as long as the bytes stay the same.
  static ArrowDataset load(const std::filesystem::path& path, const LoadOptions& options = {});
  /// Several files of one kind and the same columns, one after the other.
  static ArrowDataset load(std::span<const std::filesystem::path> paths, const LoadOptions& options = {});

  /// Named columns. `features` says what they mean; its types must be the columns'. Throws UsageError when
  /// the columns' lengths differ, naming them.
  static ArrowDataset from_columns(std::vector<std::pair<std::string, Column>> columns,
                                   const std::optional<Features>& features = std::nullopt);
  /// Rows (structures with the same fields). Without `features` the types are inferred, as from JSON.
  static ArrowDataset from_rows(std::span<const Value> rows,
                                const std::optional<Features>& features = std::nullopt);

  /// Rows that `next` gives, until it gives none, written to an Arrow file as they come and mapped from
  /// there: see ArrowWriter (lockstep/datasets/arrow_writer.hpp), which finds the types, and throws.
  static ArrowDataset from_generator(const std::function<std::optional<Value>()>& next,
                                     const std::filesystem::path& file,
                                     const std::optional<Features>& features = std::nullopt);

  // ---- what is in it ----------------------------------------------------------------------------------

  std::int64_t num_rows() const noexcept;
  std::int64_t num_columns() const noexcept;
  std::vector<std::string> column_names() const;
  bool has_column(std::string_view name) const noexcept;
  const Features& features() const noexcept;
  /// The split's name where one is known ("train"); else empty.
  const std::string& split() const noexcept;

  /// A column with this data set's rows. Throws UsageError, naming the columns that there are.
  Column column(std::string_view name) const;
  /// The same, typed: see Column::view.
  template <typename T>
  ColumnView<T> column(std::string_view name) const {
    return column(name).template view<T>();
  }
  const std::vector<std::pair<std::string, Column>>& columns() const noexcept;
  /// A row. Throws UsageError out of range.
  Row row(std::int64_t index) const;
  Row operator[](std::int64_t index) const { return row(index); }

  /// A name for the content: 32 hexadecimal digits, the same on every machine and in every run for the same
  /// files (by their bytes, not their names or dates), columns, features and rows. The key of caches. Every
  /// byte counts. Computed once and kept; the first call reads the files, unless the cache folder remembers
  /// their hashes and nobody has touched them since (docs/datasets.md).
  std::string fingerprint() const;
  /// The files that it was loaded from, each once: those that its columns are mapped from and those that were
  /// read into memory. None for what was made in memory.
  std::vector<std::filesystem::path> files() const;

  // ---- rows -------------------------------------------------------------------------------------------

  /// These rows, in this order; one may come several times. Throws UsageError out of range.
  ArrowDataset select(std::span<const std::int64_t> rows) const;
  ArrowDataset select(std::initializer_list<std::int64_t> rows) const {
    return select(std::span<const std::int64_t>(rows.begin(), rows.size()));
  }
  /// `count` rows from `start` on. Throws UsageError out of range.
  ArrowDataset slice(std::int64_t start, std::int64_t count) const;
  /// Without the first `count` rows; the first `count` rows. Fewer where there are no more.
  ArrowDataset skip(std::int64_t count) const;
  ArrowDataset take(std::int64_t count) const;
  /// Part `index` of `num_shards`: ranges whose lengths differ by one at most (the first ones are longer), or
  /// every num_shards-th row.
  ArrowDataset shard(std::int64_t num_shards, std::int64_t index, bool contiguous = true) const;
  /// The rows for which `keep` is true. Called in order, on this thread.
  ArrowDataset filter(const std::function<bool(const Row&)>& keep) const;
  /// The same by row numbers, for use with typed columns.
  ArrowDataset filter_rows(const std::function<bool(std::int64_t)>& keep) const;
  /// By one column or several, stable. NaN comes after all numbers, beside the nulls. Text is compared byte
  /// for byte, false before true; lists and structures cannot be sorted by.
  ArrowDataset sort(std::span<const SortKey> keys, NullPlacement nulls = NullPlacement::at_end) const;
  ArrowDataset sort(std::string column, bool descending = false,
                    NullPlacement nulls = NullPlacement::at_end) const;
  /// In the order of `numpy.random.default_rng(seed).permutation(rows)`, as `datasets` shuffles.
  ArrowDataset shuffle(std::uint64_t seed) const;
  /// Both parts as `datasets` makes them for the same seed.
  struct Split;
  Split train_test_split(const SplitOptions& options = {}) const;
  /// The rows in their order, copied into memory where they are reached through a list of row numbers.
  ArrowDataset flatten_indices() const;
  /// Whether rows are reached through a list of row numbers.
  bool has_indices() const noexcept;

  /// Rows of several data sets with equal columns (the order of columns may differ), one after the other.
  static ArrowDataset concatenate(std::span<const ArrowDataset> datasets);
  static ArrowDataset concatenate(std::initializer_list<ArrowDataset> datasets) {
    return concatenate(std::span<const ArrowDataset>(datasets.begin(), datasets.size()));
  }
  /// Rows in turns; with `probabilities` (they add up to 1) each from a source drawn at random, as `datasets`
  /// draws them for that seed.
  static ArrowDataset interleave(std::span<const ArrowDataset> datasets,
                                 std::span<const double> probabilities = {}, std::uint64_t seed = 0,
                                 StoppingStrategy strategy = StoppingStrategy::first_exhausted);

  // ---- columns ----------------------------------------------------------------------------------------

  ArrowDataset select_columns(std::span<const std::string> names) const;
  ArrowDataset select_columns(std::initializer_list<std::string> names) const {
    return select_columns(std::span<const std::string>(names.begin(), names.size()));
  }
  ArrowDataset remove_columns(std::span<const std::string> names) const;
  ArrowDataset remove_columns(std::initializer_list<std::string> names) const {
    return remove_columns(std::span<const std::string>(names.begin(), names.size()));
  }
  ArrowDataset rename_column(std::string_view from, std::string to) const;
  /// A new column at the end: one value for each row.
  ArrowDataset add_column(std::string name, Column column,
                          const std::optional<Feature>& feature = std::nullopt) const;
  /// Converts columns: numbers (whole and in range, or UsageError naming the row), numbers and text, class
  /// names and their numbers, lists and structures of these. `features` names each column once.
  ArrowDataset cast(const Features& features) const;
  ArrowDataset cast_column(std::string_view name, const Feature& feature) const;
  /// Makes a column of text, integers or booleans a ClassLabel: the names are its values as text, sorted.
  /// Nulls stay null.
  ArrowDataset class_encode_column(std::string_view name) const;
  /// The different values of a column, in the order in which they come first; null is one of them.
  std::vector<Value> unique(std::string_view column) const;
  /// The same rows and columns under another split name.
  ArrowDataset with_split(std::string name) const;

  // ---- to other programs ------------------------------------------------------------------------------

  /// Hands the rows over through Arrow's C stream interface, so that any library that knows it (pyarrow,
  /// pandas, Polars, DuckDB) reads them without a copy where they lie in order. `stream` is filled, and its
  /// release() ends the use; the data lives as long.
  void export_to_c(ArrowArrayStream* stream) const;

  // ---- to files ---------------------------------------------------------------------------------------

  /// Writes a folder that this and Python's `datasets.load_from_disk` read. It appears whole or not at all;
  /// one that is there is replaced. Throws UsageError when this data set is mapped from that folder.
  void save_to_disk(const std::filesystem::path& folder, const SaveOptions& options = {}) const;
  /// One file in Arrow's stream format, with the features in its schema.
  void to_arrow(const std::filesystem::path& file, std::int64_t batch_rows = 1000) const;
  /// One Parquet file, compressed by Snappy, in row groups of `batch_rows`, with the features in its schema.
  void to_parquet(const std::filesystem::path& file, std::int64_t batch_rows = 65536) const;
  /// One line a row; null for what is no finite number.
  void to_json(const std::filesystem::path& file) const;
  /// A header and one line a row. Lists and structures are written as JSON in a cell.
  void to_csv(const std::filesystem::path& file) const;

 private:
  friend class Row;
  friend struct DatasetAccess;
  struct State;
  explicit ArrowDataset(std::shared_ptr<const State> state);

  std::shared_ptr<const State> state_;
};

/// The parts of ArrowDataset::train_test_split.
struct ArrowDataset::Split {
  ArrowDataset train;
  ArrowDataset test;
};

template <typename T>
T Row::get(std::string_view name) const {
  return column(name).template view<T>()[index_];
}

}  // namespace lockstep
