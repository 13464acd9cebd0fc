#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/datasets/arrow_dataset.hpp"

namespace lockstep::readers {

/// Takes comma-separated values apart, row by row.
class CsvParser {
 public:
  struct Cell {
    std::string text;
    bool quoted = false;
  };

  /// `name` is the file's, for errors. Throws UsageError for options that contradict each other.
  CsvParser(std::string_view text, const CsvOptions& options, std::string name);

  /// Reads the next row into `cells`; false at the end. Lines with nothing in them are passed over. Throws
  /// DataError, naming the line, for a quote that is not closed or has something behind it.
  bool next(std::vector<Cell>& cells);
  /// The line on which the row that was read last begins, from 1.
  std::int64_t line() const noexcept { return row_line_; }

 private:
  bool at_end() const noexcept { return place_ == text_.size(); }
  bool at_line_end() const noexcept { return text_[place_] == '\n' || text_[place_] == '\r'; }
  void pass_line_end();
  void read_cell(Cell& cell);
  void read_quoted(Cell& cell);
  [[noreturn]] void fail(const std::string& what) const;

  std::string_view text_;
  char delimiter_;
  char quote_;
  std::string name_;
  std::size_t place_ = 0;
  std::int64_t line_ = 1;
  std::int64_t row_line_ = 0;
};

}  // namespace lockstep::readers
