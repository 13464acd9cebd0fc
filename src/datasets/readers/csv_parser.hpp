#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/datasets/arrow_dataset.hpp"

namespace lockstep::readers {

/// Parses comma-separated values row by row.
///
/// *Broken rows.* After an error, next() goes on with the line behind the first one of the broken row, which
/// therefore costs that line alone. A quote too many makes a row go on through the lines behind it, up to the
/// next quote; until there, nothing tells the lines of a text from rows. So these lines are read carefully:
/// the rows must be complete, a quote is nothing but the first character of a cell or a part of a quoted one
/// (is_careful()), and, but for the last line, a quoted cell does not go over a line's end. No line is read
/// more than three times.
class CsvParser {
 public:
  struct Cell {
    std::string text;
    bool quoted = false;
  };

  /// `name` is the file's, for errors. Throws UsageError for contradictory options.
  CsvParser(std::string_view text, const CsvOptions& options, std::string name);

  /// Reads the next row into `cells`; false at the end. Skips empty lines and lines of blanks. Throws
  /// DataError, with the line, for a quote that is not closed or is followed by other characters.
  bool next(std::vector<Cell>& cells);
  /// The first line of the row that was read last, counted from 1.
  std::int64_t line() const noexcept { return row_line_; }
  /// Whether that row may be a part of a broken one.
  bool is_careful() const noexcept { return row_begin_ < careful_until_; }

 private:
  bool at_end() const noexcept { return position_ == text_.size(); }
  bool at_line_end() const noexcept { return text_[position_] == '\n' || text_[position_] == '\r'; }
  void pass_line_end();
  void pass_blank_lines();
  void read_cell(Cell& cell);
  void read_quoted(Cell& cell);
  void pass_broken_line();
  [[noreturn]] void fail(const std::string& what);

  std::string_view text_;
  char delimiter_;
  char quote_;
  std::string name_;
  std::size_t position_ = 0;
  std::int64_t line_ = 1;
  std::int64_t row_line_ = 0;
  std::size_t row_begin_ = 0;
  /// Whether the last row was broken, and where rows begin that cannot be a part of a broken one.
  bool failed_ = false;
  std::size_t careful_until_ = 0;
};

}  // namespace lockstep::readers
