#pragma once

#include <filesystem>

#include "lockstep/datasets/arrow_dataset.hpp"

namespace lockstep {

/// How a text file is split into rows.
struct TextFileOptions {
  /// Each row ends with the line's end ("\n"), except a last line without one: the concatenated rows are the
  /// text. If false, rows are the lines without their ends, as ArrowDataset::load returns them.
  bool keep_linebreaks = true;
};

/// A column "text" with one row per line: the counterpart of Python's `load_dataset("text",
/// keep_linebreaks=...)`. *Local*. Throws DataError, naming the file and the line, for text that is not
/// UTF-8.
ArrowDataset load_text(const std::filesystem::path& path, const TextFileOptions& options = {});

/// One row per question of a file in SQuAD's format (Rajpurkar et al., 2016; versions 1.1 and 2.0; XQuAD):
///
///     {"data": [{"title": ..., "paragraphs": [{"context": ..., "qas": [
///         {"id": ..., "question": ..., "answers": [{"text": ..., "answer_start": ...}]}]}]}]}
///
/// Columns, as in Hugging Face's data set `squad`: `id`, `title`, `context`, `question` (text), `answers` (a
/// structure of the lists `text` and `answer_start`, the latter int32 and counted in characters). An id
/// that is an integer becomes text. A missing title is empty, and a question without answers (a test set's)
/// has empty lists; other names in the file are ignored. At most 64 MiB. *Local*. Throws DataError, naming
/// the file and the position in it ("data[3].paragraphs[0].qas[1].answers"), for another format.
ArrowDataset load_squad(const std::filesystem::path& path);

}  // namespace lockstep
