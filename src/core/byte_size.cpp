#include "core/byte_size.hpp"

#include <fmt/core.h>

#include <charconv>
#include <iterator>
#include <string_view>
#include <system_error>

namespace lockstep {

std::optional<std::uint64_t> parse_bytes(const std::string& text) {
  std::uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, number);
  if (failure != std::errc()) return std::nullopt;
  if (stop == end) return number;
  const auto unit = std::string_view("KMGT").find(*stop);
  if (unit == std::string_view::npos || stop + 1 != end) return std::nullopt;
  const auto shift = 10 * (unit + 1);
  if (number > (~std::uint64_t{0} >> shift)) return std::nullopt;
  return number << shift;
}

std::string bytes_text(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  return fmt::format("{:.{}f} {}", value, unit == 0 ? 0 : 1, kUnits[unit]);
}

}  // namespace lockstep
