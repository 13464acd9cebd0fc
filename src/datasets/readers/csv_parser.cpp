#include "csv_parser.hpp"

#include "lockstep/core/error.hpp"

namespace lockstep::readers {

CsvParser::CsvParser(std::string_view text, const CsvOptions& options, std::string name)
    : text_(text), delimiter_(options.delimiter), quote_(options.quote), name_(std::move(name)) {
  const auto is_line_end = [](char one) { return one == '\n' || one == '\r'; };
  if (delimiter_ == quote_ || is_line_end(delimiter_) || is_line_end(quote_)) {
    throw UsageError(
        "the delimiter and the quote of comma-separated values must be different characters, and no line "
        "ends.");
  }
  // The mark of UTF-8 that some programs write.
  if (text_.starts_with("\xEF\xBB\xBF")) place_ = 3;
}

void CsvParser::fail(const std::string& what) const {
  throw DataError("'" + name_ + "' cannot be read as CSV: line " + std::to_string(line_) + ": " + what + ".");
}

void CsvParser::pass_line_end() {
  if (text_[place_] == '\r' && place_ + 1 < text_.size() && text_[place_ + 1] == '\n') ++place_;
  ++place_;
  ++line_;
}

bool CsvParser::next(std::vector<Cell>& cells) {
  while (!at_end() && at_line_end()) pass_line_end();
  if (at_end()) return false;
  row_line_ = line_;
  std::size_t count = 0;
  for (bool more = true; more;) {
    if (count == cells.size()) cells.emplace_back();
    read_cell(cells[count++]);
    more = !at_end() && text_[place_] == delimiter_;
    if (more) ++place_;
  }
  cells.resize(count);
  if (!at_end()) pass_line_end();
  return true;
}

void CsvParser::read_cell(Cell& cell) {
  cell.text.clear();
  cell.quoted = !at_end() && text_[place_] == quote_;
  if (cell.quoted) return read_quoted(cell);
  const auto begin = place_;
  while (!at_end() && !at_line_end() && text_[place_] != delimiter_) ++place_;
  cell.text = text_.substr(begin, place_ - begin);
}

void CsvParser::read_quoted(Cell& cell) {
  const auto first_line = line_;
  for (++place_;;) {
    const auto close = text_.find(quote_, place_);
    if (close == std::string_view::npos) {
      fail("the quote that was opened on line " + std::to_string(first_line) + " is not closed");
    }
    for (auto place = place_; place < close; ++place) line_ += text_[place] == '\n' ? 1 : 0;
    cell.text += text_.substr(place_, close - place_);
    place_ = close + 1;
    if (at_end() || text_[place_] != quote_) break;
    cell.text += quote_;
    ++place_;
  }
  if (!at_end() && !at_line_end() && text_[place_] != delimiter_) {
    fail("behind a closing quote comes '" + std::string(1, text_[place_]) + "' instead of a delimiter");
  }
}

}  // namespace lockstep::readers
