#include "report/number_line.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>

namespace lockstep::launch {
namespace {

class NumberLine {
 public:
  explicit NumberLine(std::string_view rest) : rest_(rest) {}

  bool take(char wanted) {
    skip_blanks();
    if (rest_.empty() || rest_.front() != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }

  /// Text that is there without blanks before it.
  bool take_text(std::string_view wanted) {
    if (!rest_.starts_with(wanted)) return false;
    rest_.remove_prefix(wanted.size());
    return true;
  }

  bool is_at_end() {
    skip_blanks();
    return rest_.empty();
  }

  /// Plain ASCII without escapes.
  bool take_name(std::string_view& name) {
    if (!take('"')) return false;
    const auto end = std::ranges::find_if(
        rest_, [](char letter) { return letter == '"' || letter == '\\' || letter < ' ' || letter > '~'; });
    const auto length = static_cast<std::size_t>(end - rest_.begin());
    if (end == rest_.end() || *end != '"') return false;
    name = rest_.substr(0, length);
    rest_.remove_prefix(length + 1);
    return true;
  }

  /// As JSON writes it: 0.5, not .5, 5. or 05.
  bool take_number(double& number) {
    skip_blanks();
    const std::size_t sign = rest_.starts_with('-') ? 1 : 0;
    if (!is_digit_at(sign) || (rest_[sign] == '0' && is_digit_at(sign + 1))) return false;
    const char* const end = rest_.data() + rest_.size();
    const auto [stop, failure] = std::from_chars(rest_.data(), end, number);
    if (failure != std::errc() || !std::isfinite(number)) return false;
    const auto length = static_cast<std::size_t>(stop - rest_.data());
    const auto point = rest_.substr(0, length).find('.');
    if (point != std::string_view::npos && !is_digit_at(point + 1)) return false;
    rest_.remove_prefix(length);
    return true;
  }

 private:
  bool is_digit_at(std::size_t place) const {
    return place < rest_.size() && rest_[place] >= '0' && rest_[place] <= '9';
  }

  void skip_blanks() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\t')) rest_.remove_prefix(1);
  }

  std::string_view rest_;
};

}  // namespace

bool NumberLineReader::read(std::string_view line) {
  values_.clear();
  NumberLine rest(line);
  if (!rest.take('{')) return false;
  do {
    const std::size_t place = values_.size();
    if (place == kMostNumbers) return false;
    if (place >= known_ || !rest.take_text(names_[place])) {
      known_ = place;
      std::string_view name;
      if (!rest.take_name(name) || !rest.take(':')) return false;
      if (std::ranges::find(values_, name, &Value::first) != values_.end()) return false;
      names_[known_++] = fmt::format("\"{}\":", name);
    }
    double number = 0;
    if (!rest.take_number(number)) return false;
    const std::string_view name = names_[place];
    values_.emplace_back(name.substr(1, name.size() - 3), number);
  } while (rest.take(','));
  return rest.take('}') && rest.is_at_end();
}

}  // namespace lockstep::launch
