#include "core/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <span>
#include <sstream>

namespace lockstep {
namespace {

/// Of a list of ranks in a message.
constexpr std::size_t kMostRanksNamed = 16;

}  // namespace

std::string_view trim_blanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n\v\f\r";
  const auto first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::size_t count_line_ends(std::string_view text) {
  std::size_t count = 0;
  for (auto end = text.find('\n'); end != std::string_view::npos; end = text.find('\n', end + 1)) ++count;
  return count;
}

std::vector<std::string_view> split_at_commas(std::string_view text) {
  std::vector<std::string_view> parts;
  for (auto comma = text.find(','); comma != std::string_view::npos; comma = text.find(',')) {
    parts.push_back(text.substr(0, comma));
    text.remove_prefix(comma + 1);
  }
  parts.push_back(text);
  return parts;
}

std::string quote_for_shell(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,+@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string result = "'";
  for (const char letter : word) result += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return result + "'";
}

std::string to_lower_case(std::string_view text) {
  std::string result(text);
  for (char& letter : result) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return result;
}

std::string to_upper_case(std::string_view text) {
  std::string result(text);
  for (char& letter : result) {
    if (letter >= 'a' && letter <= 'z') letter = static_cast<char>(letter - 'a' + 'A');
  }
  return result;
}

std::optional<int> parse_whole_number(std::string_view text, int lowest, int highest) {
  const auto number = parse_number<int>(text);
  return number && *number >= lowest && *number <= highest ? number : std::nullopt;
}

std::string describe_whole_numbers(int lowest, int highest) {
  return highest == std::numeric_limits<int>::max()
             ? fmt::format("an integer from {}", lowest)
             : fmt::format("an integer from {} to {}", lowest, highest);
}

std::string join_with_or(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 < names.size() ? ", " : " or ") + names[i];
  return text;
}

std::string quote_names(std::span<const std::string> names, std::size_t most) {
  if (names.empty()) return "none";
  const auto shown = names.first(std::min(names.size(), most));
  return fmt::format("'{}'{}", fmt::join(shown, "', '"), names.size() > most ? ", ..." : "");
}

std::string list_ranks(const std::vector<int>& ranks) {
  const std::span<const int> named(ranks.data(), std::min(ranks.size(), kMostRanksNamed));
  const std::string text = fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(named, ", "));
  const std::size_t more = ranks.size() - named.size();
  return more == 0 ? text : fmt::format("{} and {} more", text, more);
}

std::string shorten_text(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  const auto is_inside_character = [&](std::size_t index) { return (text[index] & 0xC0) == 0x80; };
  // A character has at most four bytes; longer sequences are not UTF-8.
  for (const std::size_t least = most - std::min<std::size_t>(most, 3);
       most > least && is_inside_character(most);)
    --most;
  return fmt::format("{} ...", text.substr(0, most));
}

std::string indent_lines(const std::string& text, const std::string& indent) {
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);) result += indent + line + "\n";
  return result;
}

std::string remove_control_characters(std::string text) {
  std::erase_if(text, [](unsigned char c) { return std::iscntrl(c) != 0 && c != '\n' && c != '\t'; });
  return text;
}

std::string format_hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

}  // namespace lockstep
