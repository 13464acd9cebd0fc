#pragma once

#include <charconv>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace lockstep {

/// What texts need everywhere: to take them apart, to read numbers in them, and to write them for people. All
/// *Local*.

/// The text without white space around it.
std::string_view trim_blanks(std::string_view text);

/// The number of "\n" in the text; fast where lines are long.
std::size_t count_line_ends(std::string_view text);

/// An empty text has one part, which is empty.
std::vector<std::string_view> split_at_commas(std::string_view text);

/// The word as a shell reads it: in quotes if one of its characters means something there.
std::string quote_for_shell(const std::string& word);

/// ASCII letters only; other bytes stay.
std::string to_lower_case(std::string_view text);
std::string to_upper_case(std::string_view text);

/// Parses the whole text as a number; otherwise nothing.
template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, number);
  return failure == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

/// The text as an integer within the bounds, otherwise nothing.
std::optional<int> parse_whole_number(std::string_view text, int lowest = 0,
                                      int highest = std::numeric_limits<int>::max());

/// What parse_whole_number accepts, for messages: "an integer from 1 to 65535".
std::string describe_whole_numbers(int lowest, int highest);

/// "ls, verify, diff or merge".
std::string join_with_or(const std::vector<std::string>& names);

/// "'a', 'b'", and ", ..." where there are more than `most`; "none" for no name.
std::string quote_names(std::span<const std::string> names, std::size_t most = 20);

/// "rank 2" or "ranks 1, 3, 4 and 7 more".
std::string list_ranks(const std::vector<int>& ranks);

/// At most that many bytes, not splitting a character (UTF-8), and " ..." if anything was removed.
std::string shorten_text(std::string_view text, std::size_t most);

/// Puts `indent` before each line; ends the last line if necessary.
std::string indent_lines(const std::string& text, const std::string& indent = "  ");

/// Line ends and tabs stay.
std::string remove_control_characters(std::string text);

/// Two lower-case digits for each byte.
std::string format_hex(std::string_view bytes);

}  // namespace lockstep
