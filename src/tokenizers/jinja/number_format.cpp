#include "tokenizers/jinja/number_format.hpp"

#include <fmt/core.h>

#include <cmath>
#include <string_view>

#include "tokenizers/jinja/characters.hpp"

namespace lockstep::jinja {
namespace {

constexpr std::size_t kMostDigits = 1000;

std::string integer_digits(std::uint64_t magnitude, const FieldStyle& style) {
  const auto prefix = [&](const char* text) { return std::string(style.alternate ? text : ""); };
  switch (style.type) {
    case 'x':
      return prefix("0x") + fmt::format("{:x}", magnitude);
    case 'X':
      return prefix("0X") + fmt::format("{:X}", magnitude);
    case 'o':
      return prefix("0o") + fmt::format("{:o}", magnitude);
    case 'b':
      return prefix("0b") + fmt::format("{:b}", magnitude);
    default:
      return fmt::format("{}", magnitude);
  }
}

std::string real_digits(double magnitude, const FieldStyle& style) {
  const auto precision = static_cast<int>(style.precision.value_or(6));
  switch (style.type) {
    case 'e':
      return fmt::format("{:.{}e}", magnitude, precision);
    case 'E':
      return fmt::format("{:.{}E}", magnitude, precision);
    case 'g':
      return fmt::format("{:.{}g}", magnitude, precision);
    case 'G':
      return fmt::format("{:.{}G}", magnitude, precision);
    case 'F':
      return fmt::format("{:.{}F}", magnitude, precision);
    default:
      return fmt::format("{:.{}f}", magnitude, precision);
  }
}

std::string group(const std::string& digits) {
  const auto whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  std::string grouped;
  for (std::size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % 3 == 0) grouped += ',';
    grouped += digits[i];
  }
  return grouped + digits.substr(whole);
}

}  // namespace

std::string format_number(const Value& value, const FieldStyle& style) {
  if (style.precision.value_or(0) > kMostDigits)
    fail(fmt::format("a format has more than {} digits.", kMostDigits));
  bool negative = false;
  std::string digits;
  const bool as_real =
      std::string_view("eEfFgG").find(style.type) != std::string_view::npos && style.type != 0;
  if (value.is_integer() && !as_real) {
    negative = value.integer < 0;
    const auto bits = static_cast<std::uint64_t>(value.integer);
    digits = integer_digits(negative ? 0 - bits : bits, style);
  } else {
    const double real = value.as_real();
    negative = std::signbit(real) && !std::isnan(real);
    digits = real_digits(std::abs(real), style);
  }
  if (style.grouped) digits = group(digits);
  return (negative ? "-" : style.plus ? "+" : style.blank ? " " : "") + digits;
}

std::string pad(Budget& budget, std::string text, const FieldStyle& style, char otherwise) {
  const auto characters = count_characters(text);
  if (characters >= style.width) return text;
  const auto missing = style.width - characters;
  budget.make(missing);
  if (style.zero && style.align == 0) {
    const std::size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+' || text[0] == ' ') ? 1 : 0;
    return text.insert(sign, missing, '0');
  }
  const char align = style.align != 0 ? style.align : otherwise;
  const auto left = align == '<' ? 0 : align == '>' ? missing : missing / 2;
  return std::string(left, style.fill) + text + std::string(missing - left, style.fill);
}

}  // namespace lockstep::jinja
