#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "datasets/arrow/stream_reader.hpp"
#include "lockstep/datasets/arrow_dataset.hpp"
#include "lockstep/datasets/column_builder.hpp"
#include "lockstep/datasets/features.hpp"

namespace lockstep::readers {

/// The rows of a file in pieces of bounded size, from its beginning to its end.
class RowSource {
 public:
  virtual ~RowSource() = default;
  virtual const Features& features() const = 0;
  /// The columns of the next rows; none at the end. Throws DataError, naming the file and the place in it.
  virtual std::vector<ArrayPointer> next() = 0;
};

/// A file of text, and what errors call it: its bytes may have been unpacked elsewhere.
struct TextFile {
  std::filesystem::path path;
  std::string name;
};

/// Which rows the types of columns are found from.
enum class Types { of_the_beginning, of_all_rows };

/// A later row does not fit the types that were found at the beginning. Not for users: see for_each_piece.
struct TypesTooNarrow {};

/// Comma-separated values (RFC 4180; line ends of all kinds). The type of a column is what pandas makes of it
/// in `datasets`: the first of int64 (without nulls), float64, bool and string that all its cells are.
/// `features` names types instead of inferring them. Errors name the row, the line and the column.
std::unique_ptr<RowSource> csv_rows(const TextFile& file, const CsvOptions& options,
                                    const std::optional<Features>& features, Types types);

/// One object a line, or one list of objects. Integers widen to doubles, fields may be missing. Errors name
/// the line.
std::unique_ptr<RowSource> json_rows(const TextFile& file, const std::optional<Features>& features,
                                     Types types);

/// A column "text" with a row for each line, with its "\n" if `keep_linebreaks`.
std::unique_ptr<RowSource> text_rows(const TextFile& file, bool keep_linebreaks = false);

/// Parquet, of which only these columns are read; all when there are none. Throws DataError, naming the file.
std::unique_ptr<RowSource> parquet_rows(const std::filesystem::path& path,
                                        const std::vector<std::string>& columns);

using OpenRows = std::function<std::unique_ptr<RowSource>(Types)>;
using TakePiece = std::function<void(std::vector<ArrayPointer> columns, std::int64_t rows)>;

/// Gives all rows to the function that `begin` makes for their features, piece by piece. Where the types that
/// the beginning has are too narrow for what comes later, it starts again, with another function and the
/// types of all rows.
void for_each_piece(const OpenRows& open, const std::function<TakePiece(const Features&)>& begin);

/// All rows in memory.
ArrowDataset read_all(const OpenRows& open);

/// The columns of the piece of rows that is being read.
class PieceBuilder {
 public:
  explicit PieceBuilder(const Features& features) {
    for (const auto& item : features.items()) columns_.emplace_back(item.second.type());
  }

  ColumnBuilder& column(std::size_t place) { return columns_[place]; }

  /// The record batches of data sets are no larger: a reader of one row looks at one of them.
  bool is_full() const {
    constexpr std::int64_t kRows = 10'000;
    constexpr std::size_t kBytes = std::size_t{32} << 20;
    const auto rows = columns_.front().size();
    if (rows >= kRows) return true;
    // Only a few rows that are very long come near the limit of bytes between two looks.
    if (rows % 16 != 0) return false;
    std::size_t bytes = 0;
    for (const auto& column : columns_) bytes += column.bytes();
    return bytes >= kBytes;
  }

  /// What was added, and begins anew; nothing where there was no row.
  std::vector<ArrayPointer> take() {
    std::vector<ArrayPointer> arrays;
    if (columns_.front().size() == 0) return arrays;
    for (auto& column : columns_) arrays.push_back(column.finish().flatten());
    return arrays;
  }

 private:
  std::vector<ColumnBuilder> columns_;
};

/// The features that `datasets` writes into a schema, else what it would make of the columns. Throws
/// DataError, naming the file, where they contradict these.
Features features_of(const arrow_file::FileSchema& schema, const std::string& name);

/// A mapped file in Arrow's stream or file format.
ArrowDataset read_arrow_file(const std::filesystem::path& path, bool trusted);
/// A folder of save_to_disk.
ArrowDataset read_arrow_folder(const std::filesystem::path& folder, bool trusted);

/// The rows of finished shards, mapped.
ArrowDataset load_shards(const std::vector<std::filesystem::path>& files);
/// Those of an entry. Throws DataError when it is not there any more.
ArrowDataset open_entry(const std::filesystem::path& entry);

/// A file whose rows have to be read one after the other.
struct RowFile {
  std::filesystem::path path;
  /// What decides about its rows besides its bytes; values are JSON texts.
  std::map<std::string, std::string> fields;
  /// Its rows; the bytes lie at `unpacked`, which is another file where `path` is a compressed one.
  std::function<std::unique_ptr<RowSource>(const std::filesystem::path& unpacked, Types types)> open;
};

/// What the file is: as the options say, else by its name, else by its first bytes. Throws DataError where
/// nothing tells.
FileFormat format_of(const std::filesystem::path& path, const LoadOptions& options);

/// How a file of one of the formats that are read row by row (all but Arrow's own) is read.
RowFile row_file(const std::filesystem::path& path, FileFormat format, const LoadOptions& options);

/// The rows with the columns and the types that the options ask for.
ArrowDataset with_options(ArrowDataset rows, const LoadOptions& options);

/// The files that a pattern names: all names that "{000..146}" and "{a,b}" spell out, and of those with `*`,
/// `?` or `[...]` the files that there are, in the order of their names. Throws DataError where there is
/// none; UsageError for a pattern with more than a million names.
std::vector<std::filesystem::path> matching_files(const std::filesystem::path& pattern);

/// The rows of a file. Those of a small one come into memory. A large or compressed one is turned into an
/// Arrow file in the cache, a piece at a time, and that is mapped: by all processes, and in the next run. One
/// process writes while others that want the same wait for it; what one that was killed has left is written
/// again. Throws DataError for the file, Error for a cache that cannot be written.
ArrowDataset load_rows(const RowFile& file);

}  // namespace lockstep::readers
