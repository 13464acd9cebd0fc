#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/datasets/arrow_dataset.hpp"

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

}  // namespace lockstep::readers
