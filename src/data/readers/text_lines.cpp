#include "core/utf8_check.hpp"
#include "data/arrow/mapped_file.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/column_builder.hpp"
#include "readers.hpp"

namespace lockstep::readers {

namespace {

/// The line that begins at `begin`, with its line feed if it has one; both ends of a line of Windows are one.
std::string line_at(std::string_view text, std::size_t begin, std::size_t end, bool keep_linebreaks) {
  auto line = text.substr(begin, end - begin);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return std::string(line) + (keep_linebreaks && end < text.size() ? "\n" : "");
}

}  // namespace

ArrowDataset read_text_lines(const std::filesystem::path& path, bool keep_linebreaks) {
  const arrow_file::MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  ColumnBuilder lines{DataType(TypeKind::utf8)};
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    const std::string line = line_at(text, begin, end, keep_linebreaks);
    if (first_not_utf8(line) != std::string_view::npos) {
      throw DataError("'" + path.string() + "': line " + std::to_string(lines.size() + 1) +
                      " is no text in UTF-8.");
    }
    lines.append(line);
    begin = end + 1;
  }
  return ArrowDataset::from_columns({{"text", lines.finish()}});
}

}  // namespace lockstep::readers
