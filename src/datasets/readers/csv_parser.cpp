#include "datasets/readers/csv_parser.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "core/text.hpp"
#include "core/utf8_check.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::readers {

CsvParser::CsvParser(std::string_view text, const CsvOptions& options, std::string name)
    : text_(text), delimiter_(options.delimiter), quote_(options.quote), name_(std::move(name)) {
  const auto is_line_end = [](char one) { return one == '\n' || one == '\r'; };
  if (delimiter_ == quote_ || delimiter_ == CsvOptions::kNoQuotes || is_line_end(delimiter_) ||
      is_line_end(quote_)) {
    throw UsageError(
        "the delimiter and the quote of comma-separated values must be different characters, and no line "
        "ends.");
  }
  // Skips a UTF-8 byte order mark, which some programs write.
  if (text_.starts_with("\xEF\xBB\xBF")) position_ = 3;
}

void CsvParser::fail(const std::string& what) {
  failed_ = true;
  const auto end = line_ == row_line_ ? std::string() : fmt::format(" (to line {})", line_);
  throw DataError(fmt::format("'{}' cannot be read as CSV: line {}{}: {}.", name_, row_line_, end, what));
}

void CsvParser::pass_broken_line() {
  failed_ = false;
  constexpr const char* kEnds = "\r\n";
  const auto last_end = position_ == 0 ? std::string_view::npos : text_.find_last_of(kEnds, position_ - 1);
  const auto line_begin = last_end == std::string_view::npos ? 0 : last_end + 1;
  careful_until_ = std::max(careful_until_, line_begin + 1);
  position_ = std::min(text_.find_first_of(kEnds, row_begin_), text_.size());
  line_ = row_line_;
  if (!at_end()) pass_line_end();
}

void CsvParser::pass_line_end() {
  if (text_[position_] == '\r' && position_ + 1 < text_.size() && text_[position_ + 1] == '\n') ++position_;
  ++position_;
  ++line_;
}

void CsvParser::pass_blank_lines() {
  while (!at_end()) {
    auto end = position_;
    while (end < text_.size() && (text_[end] == ' ' || text_[end] == '\t') && text_[end] != delimiter_) ++end;
    if (end < text_.size() && text_[end] != '\n' && text_[end] != '\r') return;
    position_ = end;
    if (!at_end()) pass_line_end();
  }
}

bool CsvParser::next(std::vector<Cell>& cells) {
  if (failed_) pass_broken_line();
  pass_blank_lines();
  if (at_end()) return false;
  row_line_ = line_;
  row_begin_ = position_;
  std::size_t count = 0;
  for (bool more = true; more;) {
    if (count == cells.size()) cells.emplace_back();
    read_cell(cells[count++]);
    more = !at_end() && text_[position_] == delimiter_;
    if (more) ++position_;
  }
  cells.resize(count);
  if (!at_end()) pass_line_end();
  return true;
}

void CsvParser::read_cell(Cell& cell) {
  cell.text.clear();
  cell.quoted = quote_ != CsvOptions::kNoQuotes && !at_end() && text_[position_] == quote_;
  if (cell.quoted) return read_quoted(cell);
  const auto begin = position_;
  while (!at_end() && !at_line_end() && text_[position_] != delimiter_) ++position_;
  cell.text = text_.substr(begin, position_ - begin);
  if (is_careful() && cell.text.find(quote_) != std::string::npos)
    fail("a quote is inside of a cell, after a broken row");
}

void CsvParser::read_quoted(Cell& cell) {
  const auto first_line = line_;
  for (++position_;;) {
    const auto close = text_.find(quote_, position_);
    const auto line_end = row_begin_ + 1 < careful_until_
                              ? text_.substr(0, close).find_first_of("\r\n", position_)
                              : std::string_view::npos;
    if (close == std::string_view::npos || line_end != std::string_view::npos) {
      position_ = std::min(line_end, text_.size());
      fail(fmt::format(
          "the quote that was opened on line {} is not closed. If quotes are ordinary characters in "
          "this file, set CsvOptions::quote to kNoQuotes",
          first_line));
    }
    const auto piece = text_.substr(position_, close - position_);
    line_ += static_cast<std::int64_t>(count_line_ends(piece));
    cell.text += piece;
    position_ = close + 1;
    if (at_end() || text_[position_] != quote_) break;
    cell.text += quote_;
    ++position_;
  }
  if (!at_end() && !at_line_end() && text_[position_] != delimiter_) {
    fail("expected a delimiter after the closing quote, found '" + utf8_text(text_.substr(position_, 1)) +
         "'. If quotes are ordinary characters in this file, set CsvOptions::quote to "
         "kNoQuotes");
  }
}

}  // namespace lockstep::readers
