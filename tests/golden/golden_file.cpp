#include "golden_file.hpp"

#include <cstdlib>
#include <sstream>

namespace lockstep::golden {
namespace {

bool is_number(const std::string& line) { return line.starts_with("0x") || line.starts_with("-0x"); }

}  // namespace

std::map<std::string, std::vector<double>> sections_of(const std::string& text) {
  std::map<std::string, std::vector<double>> sections;
  std::istringstream lines(text);
  std::string heading;
  for (std::string line; std::getline(lines, line);) {
    if (is_number(line)) {
      sections[heading].push_back(std::strtod(line.c_str(), nullptr));
    } else {
      heading = line;
    }
  }
  return sections;
}

std::string first_difference(const std::string& one, const std::string& other) {
  std::istringstream lines(one);
  std::istringstream other_lines(other);
  std::string heading;
  for (int place = 0;; ++place) {
    std::string line, other_line;
    const bool more = static_cast<bool>(std::getline(lines, line));
    const bool other_more = static_cast<bool>(std::getline(other_lines, other_line));
    if (!more && !other_more) return "";
    if (line != other_line || more != other_more) {
      return "'" + heading + "' line " + std::to_string(place) + ": '" + line + "' and '" + other_line + "'";
    }
    if (is_number(line)) continue;
    heading = line;
    place = 0;
  }
}

}  // namespace lockstep::golden
