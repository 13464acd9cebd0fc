#include "report/number_words.hpp"

#include <fmt/format.h>

#include <cmath>
#include <ctime>

#include "core/time.hpp"

namespace lockstep::launch {
namespace {

std::string with_separators(std::string digits) {
  const std::size_t first = digits.starts_with('-') ? 1 : 0;
  const std::size_t point = std::min(digits.find('.'), digits.size());
  for (std::size_t position = point; position > first + 3;) digits.insert(position -= 3, 1, ',');
  return digits;
}

std::string without_trailing_zeros(std::string text) {
  if (text.find('.') == std::string::npos) return text;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

/// "1.2e-7" for "1.2e-07".
std::string short_exponent(const std::string& text) {
  const auto position = text.find('e');
  if (position == std::string::npos) return text;
  const int exponent = std::atoi(text.c_str() + position + 1);
  return fmt::format("{}e{}", without_trailing_zeros(text.substr(0, position)), exponent);
}

std::string two_units(double larger, const char* large, double smaller, const char* small) {
  if (smaller == 0) return fmt::format("{:.0f} {}", larger, large);
  return fmt::format("{:.0f} {} {:.0f} {}", larger, large, smaller, small);
}

}  // namespace

std::string count_words(double number) {
  if (!std::isfinite(number) || std::abs(number) >= 1e15) return number_words(number);
  return with_separators(fmt::format("{:.0f}", number));
}

std::string number_words(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "infinity" : "minus infinity";
  if (number == 0) return "0";
  const double size = std::abs(number);
  if (size >= 1e9 || size < 1e-3) return short_exponent(fmt::format("{:.3e}", number));
  const int digits_before = static_cast<int>(std::floor(std::log10(size))) + 1;
  const int digits_behind = std::clamp(4 - digits_before, 0, 7);
  const std::string text = fmt::format("{:.{}f}", number, size >= 1000 && size < 10'000 ? 1 : digits_behind);
  return with_separators(without_trailing_zeros(text));
}

std::string duration_words(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "an unknown time";
  if (seconds < 0.9995) return fmt::format("{:.3g} ms", seconds * 1000);
  if (seconds < 60) return number_words(std::round(seconds * 100) / 100) + " s";
  const double whole = std::round(seconds);
  if (whole < 3600) return two_units(std::floor(whole / 60), "min", std::fmod(whole, 60), "s");
  const double minutes = std::round(seconds / 60);
  if (minutes < 48 * 60) return two_units(std::floor(minutes / 60), "h", std::fmod(minutes, 60), "min");
  const double hours = std::round(seconds / 3600);
  return two_units(std::floor(hours / 24), "days", std::fmod(hours, 24), "h");
}

std::string time_words(double seconds) {
  // The year 9999.
  if (!(seconds > 0 && seconds < 253'402'300'799.0)) return "unknown";
  return format_time(static_cast<std::time_t>(seconds), "%Y-%m-%d %H:%M:%S", localtime_r);
}

std::string percent_words(double share) {
  if (!std::isfinite(share)) return "?";
  return without_trailing_zeros(fmt::format("{:.1f}", share * 100)) + " %";
}

std::string counted(double number, const std::string& noun) {
  return count_words(number) + " " + noun + (number == 1 ? "" : "s");
}

}  // namespace lockstep::launch
