#include "tokenizers/pattern.hpp"

#include "tokenizers/regex.hpp"
#include "tokenizers/utf8.hpp"

namespace lockstep::tokenizer {
namespace {

ByteRange range(std::size_t begin, std::size_t end) {
  return {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)};
}

/// Matches a fixed text like the Python package: an empty one is an empty regular expression, which matches
/// between all characters.
void find_literal(std::string_view text, std::string_view wanted, ByteRanges& matches) {
  if (wanted.empty()) {
    for (std::size_t position = 0; position < text.size(); position += sequence_length(text[position])) {
      matches.push_back(range(position, position));
    }
    if (!text.empty()) matches.push_back(range(text.size(), text.size()));
    return;
  }
  for (auto position = text.find(wanted); position != std::string_view::npos;
       position = text.find(wanted, position + wanted.size())) {
    matches.push_back(range(position, position + wanted.size()));
  }
}

void find_property(std::string_view text, Property property, ByteRanges& matches) {
  const auto& unicode = Unicode::get();
  for (std::size_t position = 0; position < text.size();) {
    const auto begin = position;
    if (unicode.is(next_character(text, position), property)) matches.push_back(range(begin, position));
  }
}

}  // namespace

Pattern::Pattern(const Node& node) {
  if (const auto literal = node.find("String")) {
    what_ = literal->text();
  } else {
    const auto expression = node["Regex"];
    what_ = std::make_shared<const Regex>(expression.text(), expression.location());
  }
}

void Pattern::find_all(std::string_view text, ByteRanges& matches) const {
  matches.clear();
  if (const auto* literal = std::get_if<std::string>(&what_)) {
    find_literal(text, *literal, matches);
  } else if (const auto* property = std::get_if<Property>(&what_)) {
    find_property(text, *property, matches);
  } else {
    std::get<std::shared_ptr<const Regex>>(what_)->find_all(text, matches);
  }
}

std::string Pattern::replaced(std::string_view text, std::string_view by) const {
  ByteRanges matches;
  find_all(text, matches);
  std::string result;
  std::size_t done = 0;
  for (const auto& match : matches) {
    result += text.substr(done, match.begin - done);
    result += by;
    done = match.end;
  }
  return result += text.substr(done);
}

}  // namespace lockstep::tokenizer
