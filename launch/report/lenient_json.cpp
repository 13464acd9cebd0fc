#include "report/lenient_json.hpp"

#include <fmt/core.h>

#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "core/json.hpp"
#include "core/json_text.hpp"
#include "core/text.hpp"

namespace lockstep::launch {
namespace {

constexpr std::uint64_t kLargestJson = std::uint64_t{256} << 20;
constexpr std::array<std::string_view, 3> kPythonWords{"-Infinity", "Infinity", "NaN"};

/// The word outside of strings that `text` begins with; empty if none.
std::string_view python_word(std::string_view text) {
  for (const auto word : kPythonWords) {
    if (text.starts_with(word)) return word;
  }
  return {};
}

/// The text with these words in quotes.
std::string with_quoted_words(std::string_view text) {
  std::string result;
  result.reserve(text.size() + 16);
  bool inside = false;
  for (std::size_t position = 0; position < text.size();) {
    const auto word = inside ? std::string_view() : python_word(text.substr(position));
    if (!word.empty()) {
      result += '"';
      result += word;
      result += '"';
      position += word.size();
      continue;
    }
    if (text[position] == '"') inside = !inside;
    if (text[position] == '\\' && position + 1 < text.size()) result += text[position++];
    result += text[position++];
  }
  return result;
}

}  // namespace

nlohmann::json parse_python_text(std::string_view text, const std::string& what) {
  const bool has_words =
      text.find("NaN") != std::string_view::npos || text.find("Infinity") != std::string_view::npos;
  if (!has_words) return json_tree::parse<nlohmann::json>(text, what);
  return json_tree::parse<nlohmann::json>(with_quoted_words(text), what);
}

nlohmann::json read_python_json(const std::filesystem::path& path) {
  InputFile file(path);
  if (file.size() > kLargestJson) {
    throw DataError(fmt::format("'{}' has {} bytes, more than the limit of {}.", path.string(), file.size(),
                                kLargestJson));
  }
  std::string text(file.size(), '\0');
  file.read(text.data(), text.size());
  return parse_python_text(text, fmt::format("'{}'", path.string()));
}

std::optional<double> number_in(const nlohmann::json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return std::nullopt;
  // from_chars reads them all.
  const auto number = parse_number<double>(value.get_ref<const std::string&>());
  return number && !std::isfinite(*number) ? number : std::nullopt;
}

std::optional<double> number_at(const nlohmann::json& value, const char* name) {
  if (!value.is_object()) return std::nullopt;
  const auto found = value.find(name);
  return found == value.end() ? std::nullopt : number_in(*found);
}

std::string plain_text(const nlohmann::json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return "none";
  return json_text(value);
}

}  // namespace lockstep::launch
