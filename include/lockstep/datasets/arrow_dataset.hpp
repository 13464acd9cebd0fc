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

/// Options for reading comma-separated values.
struct CsvOptions {
  /// Quotes are ordinary characters, like csv.QUOTE_NONE in Python: GLUE's .tsv files need it.
  static constexpr char kNoQuotes = '\0';
  /// Separates the cells of a row.
  char delimiter = ',';
  /// Encloses cells that contain delimiters, quotes (doubled) or line ends; or kNoQuotes.
  char quote = '"';
  /// Whether the first row names the columns. Otherwise they are "0", "1", ... unless column_names is set.
  bool header = true;
  /// The columns' names, replacing those of the first row. Names of the first row are made different as by
  /// pandas: "a", "a.1", and "Unnamed: 0" for an empty one.
  std::vector<std::string> column_names = {};
  /// Unquoted cells that are null; the defaults are those of pandas.
  std::vector<std::string> null_values = {"",     "#N/A",   "#N/A N/A", "#NA",  "-1.#IND", "-1.#QNAN", "-NaN",
                                          "-nan", "1.#IND", "1.#QNAN",  "<NA>", "N/A",     "NA",       "NULL",
                                          "NaN",  "None",   "n/a",      "nan",  "null"};
};

/// The format of a file, for names that do not show it.
enum class FileFormat : std::uint8_t {
  automatic,
  arrow,
  csv,
  json,
  text,
  parquet,
  /// A tar file of samples; only for IterableDataset.
  webdataset
};

/// How files are loaded.
struct LoadOptions {
  /// `automatic`: by the file extension (.arrow, .feather, .ipc, .csv, .tsv, .json, .jsonl, .ndjson, .txt,
  /// .text, .parquet; all except Arrow also with .gz, .bz2, .zst, .lz4 or .zip appended; .tar for streams),
  /// otherwise by the first bytes.
  FileFormat format = FileFormat::automatic;
  /// Types of the columns; values are converted as by ArrowDataset::cast. By default they are inferred.
  std::optional<Features> features = std::nullopt;
  CsvOptions csv = {};
  /// The columns to load, in this order; by default all. Other columns of a Parquet file are not read.
  std::vector<std::string> columns = {};
  /// Skip the verification of a record batch's buffers when the first of its rows is accessed. Only for files
  /// that nobody else could have written: a damaged one can crash the process.
  bool trusted = false;
};

/// One row of a data set. Keeps the data set's columns alive.
class Row {
 public:
  /// The value of a column. Throws UsageError, listing the columns, if there is none of that name.
  Value operator[](std::string_view column) const;
  /// The same, typed as by Column::view; throws as that does, and for a null.
  template <typename T>
  T get(std::string_view column) const;
  /// The row's number in its data set.
  std::int64_t index() const noexcept { return index_; }
  /// The whole row: a structure with the columns as fields.
  Value value() const;

 private:
  friend class ArrowDataset;
  Row(const ArrowDataset& dataset, std::int64_t index);
  const Column& column(std::string_view name) const;

  std::shared_ptr<const void> owner_;
  const std::vector<std::pair<std::string, Column>>* columns_;
  std::int64_t index_;
};

/// A number of rows, or a fraction of all rows.
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

/// Options of train_test_split.
struct SplitOptions {
  /// A fraction means ceil(fraction * rows) test rows. 0.25 if neither size is given.
  std::optional<SplitSize> test_size = std::nullopt;
  /// A fraction means floor(fraction * rows) training rows; by default the rest.
  std::optional<SplitSize> train_size = std::nullopt;
  bool shuffle = true;
  std::uint64_t seed = 0;
  /// A ClassLabel column whose class proportions both parts keep; nulls count as a class.
  std::string stratify_by_column = {};
};

/// Placement of nulls when rows are sorted.
enum class NullPlacement : std::uint8_t { at_end, at_start };

/// A column to sort by.
struct SortKey {
  std::string column = {};
  bool descending = false;
};

/// When interleaving ends.
enum class StoppingStrategy : std::uint8_t {
  /// When one data set has returned its last row.
  first_exhausted,
  /// When each has returned its last row; shorter ones restart.
  all_exhausted,
  /// When each has returned its last row; shorter ones are not repeated.
  all_exhausted_without_replacement,
};

/// Options of save_to_disk.
struct SaveOptions {
  /// Number of files; 0: one per 500 MB.
  std::int64_t num_shards = 0;
  /// Rows per record batch; `datasets` writes at most 1000.
  std::int64_t batch_rows = 1000;
};

/// Rows of named columns, mostly in memory-mapped files: the counterpart of Python's `datasets.Dataset`, with
/// the same files and, for the same seed, the same rows.
///
///     auto data = ArrowDataset::load("reviews.jsonl").shuffle(42);
///     auto parts = data.train_test_split({.test_size = 0.1, .seed = 7});
///     auto labels = parts.test.column<std::int64_t>("label");
///     for (std::int64_t row = 0; row < labels.size(); ++row) count(labels[row]);
///
/// An immutable value: every operation returns a new one. Copies share everything. Operations on rows change
/// only a list of row numbers; flatten_indices() copies the rows. Everything is *Local*; several threads may
/// use one object.
///
/// Errors: UsageError for a wrong name, row, type or option; DataError for files that cannot be read or are
/// inconsistent, naming the file and the position in it; Error for files that cannot be written.
class ArrowDataset {
 public:
  /// No columns and no rows.
  ArrowDataset();

  // ---- from files and memory --------------------------------------------------------------------------

  /// Loads a file, a pattern of files ("part-*.jsonl", "part-{00..31}.csv"), or a folder written by
  /// save_to_disk (also by Python's). For a folder of several splits (a DatasetDict) see DatasetDict::load.
  /// Arrow files are memory-mapped, not read: their memory is the system's page cache, which the processes of
  /// a host share. Other files that are compressed or have at least 8 MiB are first converted to Arrow files,
  /// once for all processes, in the cache folder (LOCKSTEP_CACHE, docs/datasets.md). They are found there as
  /// long as the bytes stay the same.
  static ArrowDataset load(const std::filesystem::path& path, const LoadOptions& options = {});
  /// Several files of one format, concatenated. A column that a file has not, or has only nulls of, is null
  /// there; integers in some files and floating numbers in others become the latter. Throws UsageError, with
  /// the file, for other differences of types.
  static ArrowDataset load(std::span<const std::filesystem::path> paths, const LoadOptions& options = {});

  /// Named columns. `features` describes them; its types must be the columns'. Throws UsageError if the
  /// columns' lengths differ, naming them.
  static ArrowDataset from_columns(std::vector<std::pair<std::string, Column>> columns,
                                   const std::optional<Features>& features = std::nullopt);
  /// Rows (structures with the same fields). Without `features` the types are inferred, as for JSON.
  static ArrowDataset from_rows(std::span<const Value> rows,
                                const std::optional<Features>& features = std::nullopt);

  /// Writes the rows that `next` returns, until it returns none, to an Arrow file one after another, and maps
  /// the file. See ArrowWriter (lockstep/datasets/arrow_writer.hpp) for how types are inferred and what is
  /// thrown.
  static ArrowDataset from_generator(const std::function<std::optional<Value>()>& next,
                                     const std::filesystem::path& file,
                                     const std::optional<Features>& features = std::nullopt);

  // ---- contents ---------------------------------------------------------------------------------------

  std::int64_t num_rows() const noexcept;
  std::int64_t num_columns() const noexcept;
  std::vector<std::string> column_names() const;
  bool has_column(std::string_view name) const noexcept;
  const Features& features() const noexcept;
  /// The name of the split if known ("train"), otherwise empty.
  const std::string& split() const noexcept;

  /// A column with this data set's rows. Throws UsageError, listing the columns, if there is none of that
  /// name.
  Column column(std::string_view name) const;
  /// The same, typed: see Column::view.
  template <typename T>
  ColumnView<T> column(std::string_view name) const {
    return column(name).template view<T>();
  }
  const std::vector<std::pair<std::string, Column>>& columns() const noexcept;
  /// A row. Throws UsageError if the index is out of range.
  Row row(std::int64_t index) const;
  Row operator[](std::int64_t index) const { return row(index); }

  /// Identifies the content: 32 hexadecimal digits, the same on every machine and in every run for the same
  /// files (by their bytes, not names or dates), columns, features and rows. The key of caches. Every byte
  /// counts. Computed once per object; the first call reads the files, unless the cache folder has their
  /// hashes and they have not been modified since (docs/datasets.md).
  std::string fingerprint() const;
  /// The files that it was loaded from, each once: those that its columns are mapped from and those that were
  /// read into memory. Empty for data created in memory.
  std::vector<std::filesystem::path> files() const;

  // ---- rows -------------------------------------------------------------------------------------------

  /// The given rows, in this order; a row may occur several times. Throws UsageError if one is out of range.
  ArrowDataset select(std::span<const std::int64_t> rows) const;
  ArrowDataset select(std::initializer_list<std::int64_t> rows) const {
    return select(std::span<const std::int64_t>(rows.begin(), rows.size()));
  }
  /// `count` rows beginning at `start`. Throws UsageError if they are out of range.
  ArrowDataset slice(std::int64_t start, std::int64_t count) const;
  /// All but the first `count` rows; the first `count` rows. Fewer if there are not enough.
  ArrowDataset skip(std::int64_t count) const;
  ArrowDataset take(std::int64_t count) const;
  /// Shard `index` of `num_shards`: contiguous ranges whose lengths differ by at most one (the first ones are
  /// longer), or every num_shards-th row.
  ArrowDataset shard(std::int64_t num_shards, std::int64_t index, bool contiguous = true) const;
  /// The rows for which `keep` returns true. It is called in order, on the calling thread.
  ArrowDataset filter(const std::function<bool(const Row&)>& keep) const;
  /// The same by row number, for use with typed columns.
  ArrowDataset filter_rows(const std::function<bool(std::int64_t)>& keep) const;
  /// Sorts by one or several columns, stable. NaN is placed between the numbers and the nulls. Text is
  /// compared byte for byte; false precedes true. Lists, structures and decimals cannot be sorted by.
  ArrowDataset sort(std::span<const SortKey> keys, NullPlacement nulls = NullPlacement::at_end) const;
  ArrowDataset sort(std::string column, bool descending = false,
                    NullPlacement nulls = NullPlacement::at_end) const;
  /// Shuffles into the order of `numpy.random.default_rng(seed).permutation(rows)`, like `datasets`.
  ArrowDataset shuffle(std::uint64_t seed) const;
  /// Splits like `datasets` for the same seed.
  struct Split;
  Split train_test_split(const SplitOptions& options = {}) const;
  /// Copies the rows into memory in their order if they are reached through a list of row numbers, into
  /// chunks of bounded size (Column::concatenate).
  ArrowDataset flatten_indices() const;
  /// Whether rows are reached through a list of row numbers.
  bool has_indices() const noexcept;

  /// Concatenates data sets with the same columns (their order may differ). A column that a data set has not,
  /// or has without a type, is null there; the columns of a data set without rows do not count.
  static ArrowDataset concatenate(std::span<const ArrowDataset> datasets);
  static ArrowDataset concatenate(std::initializer_list<ArrowDataset> datasets) {
    return concatenate(std::span<const ArrowDataset>(datasets.begin(), datasets.size()));
  }
  /// Takes rows from the data sets in turn, or, with `probabilities` (which sum to 1), each from a source
  /// drawn at random, as `datasets` draws for that seed.
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
  /// Appends a column with one value per row.
  ArrowDataset add_column(std::string name, Column column,
                          const std::optional<Feature>& feature = std::nullopt) const;
  /// Converts columns by Arrow's casts: numbers (whole and in range, otherwise UsageError naming the row and
  /// the value), numbers to text and back, dates and times to each other and to text and back, integers as
  /// times in their unit, class names to numbers and back, and lists and structures of these. `features`
  /// names each column once. Throws UsageError for types that have no conversion, and structures whose fields
  /// would be lost.
  ArrowDataset cast(const Features& features) const;
  ArrowDataset cast_column(std::string_view name, const Feature& feature) const;
  /// Converts a column of text, integers, booleans or dates to a ClassLabel whose names are the sorted values
  /// as text. Nulls stay null.
  ArrowDataset class_encode_column(std::string_view name) const;
  /// The distinct values of a column, in the order of their first occurrence; null counts as a value.
  std::vector<Value> unique(std::string_view column) const;
  /// The same rows and columns with another split name.
  ArrowDataset with_split(std::string name) const;

  // ---- export -----------------------------------------------------------------------------------------

  /// Exports the rows through Arrow's C stream interface: libraries that support it (pyarrow, pandas, Polars,
  /// DuckDB) read them without a copy if they are stored in order. Fills `stream`; the data lives until its
  /// release() is called.
  void export_to_c(ArrowArrayStream* stream) const;

  // ---- to files ---------------------------------------------------------------------------------------

  /// Writes a folder that load() and Python's `datasets.load_from_disk` read. It appears completely or not at
  /// all, and replaces an existing one. Throws UsageError if this data set is mapped from that folder.
  void save_to_disk(const std::filesystem::path& folder, const SaveOptions& options = {}) const;
  /// Writes one file in Arrow's stream format, with the features in its schema.
  void to_arrow(const std::filesystem::path& file, std::int64_t batch_rows = 1000) const;
  /// Writes one Parquet file, compressed with Snappy, in row groups of at most `batch_rows` and 32 MiB, with
  /// the features in its schema.
  void to_parquet(const std::filesystem::path& file, std::int64_t batch_rows = 65536) const;
  /// Writes one line per row; null for NaN and infinities, ISO 8601 for dates and times, Base64 for bytes.
  void to_json(const std::filesystem::path& file) const;
  /// Writes a header and one line per row, with dates, times and bytes as in JSON. Lists and structures are
  /// written as JSON in a cell.
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
