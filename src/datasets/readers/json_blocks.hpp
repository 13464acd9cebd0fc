#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "datasets/arrow/mapped_file.hpp"
#include "datasets/readers/readers.hpp"

namespace lockstep::readers {

/// Some rows of a file of JSON, one per line.
struct JsonBlock {
  std::string_view text = {};
  /// Owns `text` if it is not a part of the file.
  std::shared_ptr<const std::string> own = nullptr;
  /// Which row of the file is the first: its line, from 1, or its index in the list, from 0.
  std::int64_t number = 0;
  /// The same of all rows, if they do not follow one another.
  std::vector<std::int64_t> numbers = {};
};

/// The rows of a file of JSON, in blocks of a given size or one longer row. The file is one of these:
///
/// - lines with an object each, which are found without looking into them, so that a broken one costs no
///   other;
/// - a list of objects;
/// - objects one after another, of which one goes over several lines (as `jq` writes them), found by their
///   brackets.
///
/// What ends in the middle of a list or of an object is an error, DataError, behind the rows before it.
class JsonBlocks {
 public:
  JsonBlocks(const TextFile& file, std::size_t block_bytes);

  /// Nothing at the end.
  std::optional<JsonBlock> next();

  /// Calls `take(row, number, where)` for each row that is not blank; `where` is its location, for errors.
  template <typename Take>
  void each_row(const JsonBlock& block, const Take& take) const {
    auto number = block.number;
    std::size_t count = 0;
    for (std::size_t begin = 0; begin < block.text.size(); ++number, ++count) {
      const auto end = std::min(block.text.find('\n', begin), block.text.size());
      const auto row = block.text.substr(begin, end - begin);
      begin = end + 1;
      if (!block.numbers.empty()) number = block.numbers[count];
      if (row.find_first_not_of(" \t\r") != std::string_view::npos) take(row, number, location_of(number));
    }
  }

  const std::string& name() const noexcept { return name_; }

 private:
  enum class Layout { lines, list, objects };

  std::string_view text() const { return file_.text(); }
  std::string location_of(std::int64_t number) const;

  bool has_object_over_lines(std::size_t position) const;
  std::size_t object_end(std::size_t position) const;
  void add_row(std::string& rows, std::string_view row, std::int64_t number) const;

  std::optional<JsonBlock> next_lines();
  std::string_view whole_lines() const;

  template <typename Add>
  std::optional<JsonBlock> next_rows(const Add& add);
  bool add_object(JsonBlock& block, std::string& rows);
  bool add_element(std::string& rows);
  std::size_t element_end() const;

  arrow_file::MappedFile file_;
  std::string name_;
  std::size_t block_bytes_;
  Layout layout_ = Layout::lines;
  std::size_t position_ = 0;
  std::int64_t line_ = 1;
  std::int64_t elements_ = 0;
  /// Whether the list has ended.
  bool ended_ = false;
};

}  // namespace lockstep::readers
