#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/arrow_dataset.hpp"

namespace lockstep::readers {

/// The rows of a file in pieces of bounded size, from its beginning to its end.
class RowSource {
 public:
  virtual ~RowSource() = default;
  virtual const Features& features() const = 0;
  /// The columns of the next rows; none at the end. Throws DataError, naming the file and the place in it.
  virtual std::vector<ArrayPointer> next() = 0;
};

/// Comma-separated values (RFC 4180; line ends of all kinds). The type of a column is the first of bool,
/// int64, float64 and string that all its cells are. `features` names types instead of inferring them. Throws
/// DataError, naming the file, the row and the column.
ArrowDataset read_csv(const std::filesystem::path& path, const CsvOptions& options,
                      const std::optional<Features>& features);

/// One object a line, or one list of objects. Types are found over the whole file: integers widen to
/// doubles, fields may be missing. Throws DataError, naming the file and the line.
ArrowDataset read_json(const std::filesystem::path& path, const std::optional<Features>& features);

/// A column "text" with a row for each line, with its "\n" if `keep_linebreaks`.
ArrowDataset read_text_lines(const std::filesystem::path& path, bool keep_linebreaks = false);

/// Parquet, of which only these columns are read; all when there are none. Throws DataError, naming the file.
std::unique_ptr<RowSource> parquet_rows(const std::filesystem::path& path,
                                        const std::vector<std::string>& columns);

/// The rest of the rows, in memory.
ArrowDataset read_all(RowSource& source);

}  // namespace lockstep::readers
