#pragma once

#include <filesystem>

#include "lockstep/datasets/arrow_dataset.hpp"

namespace lockstep {

/// How a text file becomes rows.
struct TextFileOptions {
  /// Each row ends with the line's end ("\n"), but for a last line without one: rows that are joined again
  /// give the text. Without, rows are the lines' bare text, as ArrowDataset::load gives them.
  bool keep_linebreaks = true;
};

/// A column "text" with a row for each line: what `load_dataset("text", keep_linebreaks=...)` gives in
/// Python. *Local*. Throws DataError, naming the file and the line, for what is no UTF-8.
ArrowDataset load_text(const std::filesystem::path& path, const TextFileOptions& options = {});

/// A row for each question of a file in SQuAD's layout (Rajpurkar et al., 2016; versions 1.1 and 2.0; XQuAD):
///
///     {"data": [{"title": ..., "paragraphs": [{"context": ..., "qas": [
///         {"id": ..., "question": ..., "answers": [{"text": ..., "answer_start": ...}]}]}]}]}
///
/// Columns, as in the data set `squad` of Hugging Face: `id`, `title`, `context`, `question` (text),
/// `answers` (a structure of the lists `text` and `answer_start`, the latter int32 and counted in
/// characters). A title that is not there is empty; other names in the file are passed over. At most 64 MiB.
/// *Local*. Throws DataError, naming the file and the place in it ("data[3].paragraphs[0].qas[1].answers"),
/// for another layout.
ArrowDataset load_squad(const std::filesystem::path& path);

}  // namespace lockstep
