#include "table.hpp"

#include <algorithm>
#include <cstdio>

namespace check {
namespace {

std::string formatted(double number, const char* unit) {
  char text[48];
  std::snprintf(text, sizeof text,
                number < 10    ? "%.2f %s"
                : number < 100 ? "%.1f %s"
                               : "%.0f %s",
                number, unit);
  return text;
}

}  // namespace

std::string Table::text() const {
  std::vector<std::size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i)
      text += "  " + std::string(widths[i] - row[i].size(), ' ') + row[i];
    text += '\n';
  }
  return text;
}

std::string bytes_text(std::int64_t bytes) {
  constexpr std::int64_t kKilo = 1024;
  if (bytes < kKilo) return std::to_string(bytes) + " B";
  if (bytes < kKilo * kKilo) return std::to_string(bytes / kKilo) + " KiB";
  return std::to_string(bytes / kKilo / kKilo) + " MiB";
}

std::string time_text(double seconds) {
  if (seconds < 1e-3) return formatted(seconds * 1e6, "us");
  return seconds < 1 ? formatted(seconds * 1e3, "ms") : formatted(seconds, "s");
}

std::string bandwidth_text(double bytes_per_second) {
  return bytes_per_second < 1e9 ? formatted(bytes_per_second / 1e6, "MB/s")
                                : formatted(bytes_per_second / 1e9, "GB/s");
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace check
