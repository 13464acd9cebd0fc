#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::jinja {

// Texts by characters, as Python's str has them. All texts are valid UTF-8.

/// What str.isspace(), str.strip() and \s of regular expressions take for white space.
bool is_space(char32_t code);
/// What str.splitlines() takes for the end of a line.
bool is_line_end(char32_t code);
/// What repr() shows as it is.
bool is_printable(char32_t code);
bool is_letter(char32_t code);
bool is_digit(char32_t code);

/// Which ends are stripped.
enum class Ends : std::uint8_t { left, right, both };
std::string_view strip_space(std::string_view text, Ends ends = Ends::both);
/// Strips any of these characters.
std::string_view strip_characters(std::string_view text, std::string_view characters, Ends ends);

/// The byte at which a character begins; the text's size for one behind the last.
std::size_t byte_of_character(std::string_view text, std::size_t character);
std::size_t count_characters(std::string_view text);
std::u32string characters_of(std::string_view text);
std::string text_of_characters(std::u32string_view characters);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
/// The first character in upper case (title case), the rest in lower case.
std::string capitalize(std::string_view text);

/// The lines, without their ends or with them.
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends = false);

}  // namespace lockstep::jinja
