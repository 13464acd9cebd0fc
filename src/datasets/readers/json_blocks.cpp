#include "datasets/readers/json_blocks.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "core/text.hpp"
#include "datasets/readers/json_values.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::readers {
namespace {

constexpr const char* kBlanks = " \t\r\n";

bool is_blank_json(std::string_view text) {
  return text.find_first_not_of(kBlanks) == std::string_view::npos;
}

/// The first position outside of texts for which `stop(position, depth)` is true; the text's end if there is
/// none.
template <typename Stop>
std::size_t scan_json(std::string_view text, std::size_t position, const Stop& stop) {
  int depth = 0;
  for (; position < text.size(); ++position) {
    if (stop(position, depth)) return position;
    const char one = text[position];
    if (one == '"') {
      position = find_closing_quote(text, position + 1);
    } else {
      depth += one == '{' || one == '[' ? 1 : one == '}' || one == ']' ? -1 : 0;
    }
  }
  return text.size();
}

/// Whether a row has a line break inside a text, where JSON has "\n" for it.
bool has_broken_text(std::string_view row) {
  for (auto begin = row.find('"'); begin < row.size(); begin = row.find('"', begin)) {
    const auto end = find_closing_quote(row, begin + 1);
    if (row.substr(begin, end - begin).find('\n') != std::string_view::npos) return true;
    begin = std::min(end + 1, row.size());
  }
  return false;
}

}  // namespace

JsonBlocks::JsonBlocks(const TextFile& file, std::size_t block_bytes)
    : file_(file.path), name_(file.name), block_bytes_(block_bytes) {
  // A byte order mark.
  if (text().starts_with("\xEF\xBB\xBF")) position_ = 3;
  const auto first = text().find_first_not_of(kBlanks, position_);
  if (first == std::string_view::npos) return;
  if (text()[first] == '[') {
    layout_ = Layout::list;
    position_ = first + 1;
  } else if (has_object_over_lines(first)) {
    layout_ = Layout::objects;
  }
}

/// Whether one of the first objects goes over several lines. A line that is broken off does not: what its
/// brackets enclose together with the next lines is not JSON.
bool JsonBlocks::has_object_over_lines(std::size_t position) const {
  constexpr std::size_t kLook = std::size_t{1} << 20;
  const auto most = position + kLook;
  while (position < std::min(most, text().size()) && text()[position] == '{') {
    const auto end = object_end(position);
    if (end == std::string_view::npos) return false;
    const auto object = text().substr(position, end - position);
    if (object.find('\n') != std::string_view::npos) return is_json(object);
    position = std::min(text().find_first_not_of(kBlanks, end), text().size());
  }
  return false;
}

/// The end of the object that begins here; npos if it does not end.
std::size_t JsonBlocks::object_end(std::size_t position) const {
  const auto last = scan_json(text(), position, [&](std::size_t here, int depth) {
    return depth == 1 && (text()[here] == '}' || text()[here] == ']');
  });
  return last == text().size() ? std::string_view::npos : last + 1;
}

std::optional<JsonBlock> JsonBlocks::next() {
  if (layout_ == Layout::lines) return next_lines();
  if (layout_ == Layout::objects)
    return next_rows([&](JsonBlock& block, std::string& rows) { return add_object(block, rows); });
  return next_rows([&](JsonBlock&, std::string& rows) { return add_element(rows); });
}

std::string JsonBlocks::location_of(std::int64_t number) const {
  return fmt::format("{} {} of '{}'", layout_ == Layout::list ? "element" : "line", number, name_);
}

std::optional<JsonBlock> JsonBlocks::next_lines() {
  if (position_ >= text().size()) return std::nullopt;
  JsonBlock block{.text = whole_lines(), .number = line_};
  position_ += block.text.size();
  line_ += static_cast<std::int64_t>(count_line_ends(block.text));
  return block;
}

std::string_view JsonBlocks::whole_lines() const {
  const auto left = text().substr(position_);
  if (left.size() <= block_bytes_) return left;
  auto end = left.rfind('\n', block_bytes_);
  if (end == std::string_view::npos) end = left.find('\n', block_bytes_);
  return left.substr(0, end == std::string_view::npos ? end : end + 1);
}

/// `add` appends one row and returns true; at the end it returns false. What it throws for a row comes behind
/// the rows before that one.
template <typename Add>
std::optional<JsonBlock> JsonBlocks::next_rows(const Add& add) {
  const auto rows = std::make_shared<std::string>();
  JsonBlock block{.own = rows, .number = elements_};
  try {
    while (rows->size() < block_bytes_ && add(block, *rows)) {
    }
  } catch (const DataError&) {
    if (rows->empty()) throw;
  }
  if (rows->empty()) return std::nullopt;
  block.text = *rows;
  return block;
}

/// Appends a row on one line: a line break between its values becomes a space.
void JsonBlocks::add_row(std::string& rows, std::string_view row, std::int64_t number) const {
  if (has_broken_text(row))
    throw DataError(location_of(number) + ": a string contains a line break, which JSON writes as \\n.");
  const auto begin = rows.insert(rows.end(), row.begin(), row.end());
  std::replace(begin, rows.end(), '\n', ' ');
  rows += '\n';
}

bool JsonBlocks::add_object(JsonBlock& block, std::string& rows) {
  const auto begin = std::min(text().find_first_not_of(kBlanks, position_), text().size());
  line_ += static_cast<std::int64_t>(count_line_ends(text().substr(position_, begin - position_)));
  position_ = begin;
  if (position_ == text().size()) return false;
  if (text()[position_] != '{') throw DataError(location_of(line_) + ": it does not begin an object.");
  const auto end = object_end(position_);
  if (end == std::string_view::npos) {
    static_cast<void>(parse_json(text().substr(position_), location_of(line_)));
    throw DataError(location_of(line_) + ": its object does not end.");
  }
  const auto object = text().substr(position_, end - position_);
  add_row(rows, object, line_);
  block.numbers.push_back(line_);
  line_ += static_cast<std::int64_t>(count_line_ends(object));
  position_ = end;
  return true;
}

/// Appends the next element and consumes what follows it: a comma or the end of the list.
bool JsonBlocks::add_element(std::string& rows) {
  if (ended_) {
    if (is_blank_json(text().substr(position_))) return false;
    throw DataError("'" + name_ + "': it is not valid JSON: something follows its list.");
  }
  const auto end = element_end();
  const auto element = text().substr(position_, end - position_);
  if (is_blank_json(element)) {
    if (text()[end] != ']' || elements_ > 0) static_cast<void>(parse_json(element, location_of(elements_)));
  } else {
    add_row(rows, element, elements_);
    ++elements_;
  }
  ended_ = text()[end] == ']';
  position_ = end + 1;
  return !is_blank_json(element) || add_element(rows);
}

std::size_t JsonBlocks::element_end() const {
  const auto end = scan_json(text(), position_, [&](std::size_t position, int depth) {
    return depth == 0 && (text()[position] == ',' || text()[position] == ']');
  });
  if (end < text().size()) return end;
  static_cast<void>(parse_json(text().substr(position_), location_of(elements_)));
  throw DataError("'" + name_ + "': it is not valid JSON: its list does not end.");
}

}  // namespace lockstep::readers
