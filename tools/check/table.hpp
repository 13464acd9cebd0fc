#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace check {

/// A table for a terminal: right-aligned columns, a title each.
class Table {
 public:
  explicit Table(std::vector<std::string> titles) : rows_{std::move(titles)} {}

  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

/// "4 B", "256 KiB", "32 MiB".
std::string bytes_text(std::int64_t bytes);
/// "12.3 us", "4.56 ms", "1.20 s".
std::string time_text(double seconds);
/// "1.23 GB/s".
std::string bandwidth_text(double bytes_per_second);

double median(std::vector<double> values);

}  // namespace check
