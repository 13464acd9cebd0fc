#include "train/rules/python_json.hpp"

#include <array>
#include <cctype>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "core/json_text.hpp"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

/// Python's JSON text has the bare word; while nlohmann::json parses or writes, the word is a string with
/// this prefix.
constexpr const char* kMark = "\x01number:";
constexpr std::array<std::pair<std::string_view, double>, 3> kWords{
    {{"-Infinity", -std::numeric_limits<double>::infinity()},
     {"Infinity", std::numeric_limits<double>::infinity()},
     {"NaN", std::numeric_limits<double>::quiet_NaN()}}};

std::string_view word_of(double value) {
  if (std::isnan(value)) return "NaN";
  return value > 0 ? "Infinity" : "-Infinity";
}

Json marked(const Json& value) {
  if (value.is_number_float() && !std::isfinite(value.get<double>()))
    return kMark + std::string(word_of(value.get<double>()));
  if (!value.is_structured()) return value;
  Json result = value;
  for (auto& element : result) element = marked(element);
  return result;
}

Json unmarked(const Json& value) {
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    for (const auto& [word, number] : kWords) {
      if (text == kMark + std::string(word)) return number;
    }
  }
  if (!value.is_structured()) return value;
  Json result = value;
  for (auto& element : result) element = unmarked(element);
  return result;
}

void replace_all(std::string& text, const std::string& from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

/// The word that `text` begins with; null if none.
std::optional<std::string_view> leading_word(std::string_view text) {
  for (const auto& [word, number] : kWords) {
    if (text.starts_with(word)) return word;
  }
  return std::nullopt;
}

/// The same text with each word outside strings replaced by a marked string.
std::string with_marks(std::string_view text) {
  std::string result;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const auto word = inside ? std::nullopt : leading_word(text.substr(at));
    if (word) {
      result += "\"\\u0001" + std::string(kMark + 1) + std::string(*word) + "\"";
      at += word->size();
      continue;
    }
    if (text[at] == '"') inside = !inside;
    if (text[at] == '\\' && at + 1 < text.size()) result += text[at++];
    result += text[at++];
  }
  return result;
}

}  // namespace

std::string python_json_text(const Json& document) {
  std::string text = json_text(marked(document), 2);
  for (const auto& [word, number] : kWords)
    replace_all(text, "\"\\u0001" + std::string(kMark + 1) + std::string(word) + "\"", word);
  return text + "\n";
}

Json parse_python_json(std::string_view text) { return unmarked(Json::parse(with_marks(text))); }

}  // namespace lockstep
