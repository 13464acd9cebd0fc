#pragma once

#include <filesystem>
#include <optional>

#include "lockstep/data/arrow_dataset.hpp"

namespace lockstep::readers {

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

/// By the library liblockstep_arrow, which is loaded when it is first needed. Throws UsageError, with what to
/// install, where there is none; DataError, naming the file, for a file that is no Parquet.
ArrowDataset read_parquet(const std::filesystem::path& path);

}  // namespace lockstep::readers
