#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "datasets/arrow/arrow_conversions.hpp"
#include "lockstep/datasets/arrow_dataset.hpp"
#include "lockstep/datasets/column_builder.hpp"
#include "lockstep/datasets/features.hpp"

namespace lockstep::readers {

/// The rows of a file in pieces of bounded size, in order.
class RowSource {
 public:
  virtual ~RowSource() = default;
  virtual const Features& features() const = 0;
  /// The columns of the next rows; empty at the end. Throws DataError, with the file and the location in it.
  virtual std::vector<ArrayPointer> next() = 0;
};

/// Called for a line that is left out because it cannot be read, in the order of the lines. `line` is its
/// number, that of the first line of a row of several, or an element's in a list.
using TakeBadLine = std::function<void(std::int64_t line, const std::string& reason)>;

/// A text file, and its name in errors: the bytes may have been decompressed to another path.
struct TextFile {
  std::filesystem::path path;
  std::string name;
  /// If empty, a line that cannot be read is an error.
  TakeBadLine take_bad = {};
};

/// Which rows the types of columns are inferred from.
enum class Types { of_the_beginning, of_all_rows };

/// Thrown when a later row does not fit the types inferred from the beginning. Internal: see for_each_piece.
struct TypesTooNarrow {};

/// Comma-separated values (RFC 4180; any line breaks). Column types are those of pandas in `datasets`: the
/// first of int64 and uint64 (without nulls), float64, bool and string that all cells fit; but integers that
/// float64 would round stay int64 beside nulls. `features` sets types instead of inferring them. Errors have
/// the row, the line and the column.
std::unique_ptr<RowSource> csv_rows(const TextFile& file, const CsvOptions& options,
                                    const std::optional<Features>& features, Types types);

/// One object per line, objects over several lines one after another, or one list of objects. Integers widen
/// to doubles, fields may be missing. Columns of `kept_as_json` have the feature Json. Errors have the line.
std::unique_ptr<RowSource> json_rows(const TextFile& file, const std::optional<Features>& features,
                                     Types types, const std::vector<std::string>& kept_as_json = {});

/// A column "text" with one row per line, with its "\n" if `keep_linebreaks`.
std::unique_ptr<RowSource> text_rows(const TextFile& file, bool keep_linebreaks = false);

/// Parquet. Reads only these columns; all if `columns` is empty. Throws DataError with the file's name.
std::unique_ptr<RowSource> parquet_rows(const std::filesystem::path& path,
                                        const std::vector<std::string>& columns);

using OpenRows = std::function<std::unique_ptr<RowSource>(Types)>;
using TakePiece = std::function<void(std::vector<ArrayPointer> columns, std::int64_t rows)>;

/// Passes all rows, piece by piece, to the function that `begin` returns for their features. If a later row
/// does not fit the types inferred from the beginning, starts again, with another function and types inferred
/// from all rows.
void for_each_piece(const OpenRows& open, const std::function<TakePiece(const Features&)>& begin);

/// All rows in memory.
ArrowDataset read_all(const OpenRows& open);

/// Builds the columns of the current piece of rows.
class PieceBuilder {
 public:
  explicit PieceBuilder(const Features& features) {
    for (const auto& item : features.items()) columns_.emplace_back(item.second.type());
  }

  ColumnBuilder& column(std::size_t index) { return columns_[index]; }

  /// Limits the size of record batches: reading one row accesses one of them.
  bool is_full() const {
    constexpr std::int64_t kRows = 10'000;
    const auto rows = columns_.front().size();
    if (rows >= kRows) return true;
    // Bytes are counted every 16 rows only: between two counts, only very long rows add much.
    if (rows % 16 != 0) return false;
    std::size_t bytes = 0;
    for (const auto& column : columns_) bytes += column.bytes();
    return bytes >= static_cast<std::size_t>(arrow_file::kPieceBytes);
  }

  /// The number of rows begun so far.
  std::int64_t rows() const { return columns_.front().size(); }

  /// Leaves out a row, the last one, of which some columns may not have a cell yet.
  void leave_out(std::int64_t row) {
    bool begun = false;
    for (auto& column : columns_) begun = begun || column.size() > row;
    if (!begun) return;
    for (auto& column : columns_) {
      if (column.size() == row) column.append_null();
    }
    left_out_.push_back(row);
  }

  /// The rows added so far; starts a new piece. Empty if there are none.
  std::vector<ArrayPointer> take() {
    std::vector<ArrayPointer> arrays;
    std::vector<std::int64_t> kept;
    for (std::int64_t row = 0; !left_out_.empty() && row < rows(); ++row) {
      if (!std::binary_search(left_out_.begin(), left_out_.end(), row)) kept.push_back(row);
    }
    if (rows() == std::ssize(left_out_)) {
      for (auto& column : columns_) static_cast<void>(column.finish());
    } else {
      for (auto& builder : columns_) {
        const auto column = builder.finish();
        arrays.push_back((left_out_.empty() ? column : column.select(kept)).flatten());
      }
    }
    left_out_.clear();
    return arrays;
  }

 private:
  std::vector<ColumnBuilder> columns_;
  /// In ascending order.
  std::vector<std::int64_t> left_out_;
};

/// The features that `datasets` has stored in a schema; of columns that have none there, or another type by
/// now, those that it would infer. With `is_parquet` a column may be stored as what Parquet makes of its
/// type, and is to be cast. Throws DataError, with the file's name, for what is no description of features.
Features features_of(const arrow_file::FileSchema& schema, const std::string& name, bool is_parquet = false);

/// A mapped file in Arrow's stream or file format.
ArrowDataset read_arrow_file(const std::filesystem::path& path, bool trusted);
/// A folder of save_to_disk.
ArrowDataset read_arrow_folder(const std::filesystem::path& folder, bool trusted);

/// The rows of finished shards, mapped.
ArrowDataset load_shards(const std::vector<std::filesystem::path>& files);
/// The rows of an entry. Throws DataError if it no longer exists.
ArrowDataset open_entry(const std::filesystem::path& entry);

/// A file that must be read row by row.
struct RowFile {
  std::filesystem::path path;
  /// What determines its rows besides its bytes; values are JSON texts.
  std::map<std::string, std::string> fields;
  /// Opens its rows. The bytes are at `unpacked`, which differs from `path` if that is compressed.
  std::function<std::unique_ptr<RowSource>(const std::filesystem::path& unpacked, Types types)> open;
};

/// The format of the file: from the options, otherwise from its name, otherwise from its first bytes. Throws
/// DataError if none of these determines it.
FileFormat format_of(const std::filesystem::path& path, const LoadOptions& options);

/// Describes a file of one of the formats that are read row by row (all except Arrow's own). `take_bad` is
/// for the formats of text: see TextFile.
RowFile row_file(const std::filesystem::path& path, FileFormat format, const LoadOptions& options,
                 const TakeBadLine& take_bad = {});

/// The rows of a file of JSON in which the columns of these names, if there are any, have the feature Json.
ArrowDataset load_json(const std::filesystem::path& path, const std::vector<std::string>& kept_as_json);

/// The rows with the columns and types that the options request.
ArrowDataset with_options(ArrowDataset rows, const LoadOptions& options);

/// The files that match a pattern: all names that "{000..146}" and "{a,b}" expand to, and for `*`, `?` or
/// `[...]`, also "**/" for any folders, the existing files, sorted by name. Throws DataError if there are
/// none, UsageError for a pattern with more than a million names.
std::vector<std::filesystem::path> matching_files(const std::filesystem::path& pattern);

/// The rows of a file. A small file is read into memory. A large or compressed one is converted piece by
/// piece to an Arrow file in the cache, which all processes, also of later runs, map. One process writes it
/// while others that need it wait; what a killed process left is written again. Throws DataError for the
/// file, Error if the cache cannot be written.
ArrowDataset load_rows(const RowFile& file);

/// A column "text" with the lines of a file, each with its "\n" if `keep_linebreaks`.
ArrowDataset load_text_rows(const std::filesystem::path& path, bool keep_linebreaks);

}  // namespace lockstep::readers
