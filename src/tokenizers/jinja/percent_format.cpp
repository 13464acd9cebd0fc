#include "tokenizers/jinja/percent_format.hpp"

#include <fmt/core.h>

#include <cmath>
#include <string>
#include <string_view>

#include "tokenizers/jinja/characters.hpp"
#include "tokenizers/jinja/number_format.hpp"
#include "tokenizers/jinja/text_form.hpp"

namespace lockstep::jinja {
namespace {

/// Writes a format's text and fields one after the other.
class PercentWriter {
 public:
  PercentWriter(Budget& budget, const std::string& format, const Value& values)
      : text_(budget), format_(format), values_(values) {}

  std::string run() {
    while (position_ < format_.size()) {
      const auto mark = std::min(format_.find('%', position_), format_.size());
      text_.add(std::string_view(format_).substr(position_, mark - position_));
      position_ = mark + 1;
      if (mark < format_.size()) write_field();
    }
    if (values_.is(Kind::tuple) ? taken_ < items_of(values_).size() : taken_ == 0 && !takes_any()) {
      fail("a format with '%' has fewer fields than values.");
    }
    return text_.take();
  }

 private:
  /// What may be left over: a dictionary or a list, whose values are named.
  bool takes_any() const { return named_ || values_.is(Kind::dict) || values_.is(Kind::list); }

  char peek() const {
    if (position_ >= format_.size()) fail("a format with '%' ends within a field.");
    return format_[position_];
  }

  Value next_value() {
    if (values_.is(Kind::tuple)) {
      if (taken_ >= items_of(values_).size()) fail("a format with '%' has more fields than values.");
      return items_of(values_)[taken_++];
    }
    if (taken_++ > 0) fail("a format with '%' has more fields than values.");
    return values_;
  }

  Value named_value() {
    if (!values_.is(Kind::dict)) fail("a format with '%(name)' needs a dictionary.");
    const auto end = format_.find(')', position_);
    if (end == std::string::npos) fail("a format with '%' ends within a name.");
    const auto name = format_.substr(position_ + 1, end - position_ - 1);
    position_ = end + 1;
    named_ = true;
    const auto* found = find_key(text_.budget(), values_, name);
    if (found == nullptr) fail(fmt::format("a format with '%' needs the key '{}'.", name));
    return *found;
  }

  std::size_t read_count() {
    if (peek() == '*') {
      ++position_;
      const auto value = next_value();
      if (!value.is_integer() || value.integer < 0) fail("a format with '%*' needs a positive integer.");
      return static_cast<std::size_t>(value.integer);
    }
    std::size_t count = 0;
    while (peek() >= '0' && peek() <= '9') {
      count = count * 10 + static_cast<std::size_t>(format_[position_++] - '0');
      if (count > 1'000'000'000) fail("a format with '%' has too wide a field.");
    }
    return count;
  }

  void write_field() {
    FieldStyle style;
    std::optional<Value> value;
    if (peek() == '(') value = named_value();
    for (; std::string_view("-+ #0").find(peek()) != std::string_view::npos; ++position_) {
      if (peek() == '-') style.align = '<';
      style.plus |= peek() == '+';
      style.blank |= peek() == ' ';
      style.alternate |= peek() == '#';
      style.zero |= peek() == '0';
    }
    style.width = read_count();
    if (peek() == '.') {
      ++position_;
      style.precision = read_count();
    }
    style.type = peek();
    ++position_;
    if (style.type == '%') return text_.add("%");
    write_value(value ? *value : next_value(), style);
  }

  void write_value(const Value& value, FieldStyle& style) {
    auto& budget = text_.budget();
    if (style.type == 's' || style.type == 'r') {
      auto shown = style.type == 's' ? to_text(budget, value) : to_repr(budget, value);
      if (style.precision) shown.resize(byte_of_character(shown, *style.precision));
      style.zero = false;
      return text_.add(pad(budget, std::move(shown), style, '>'));
    }
    if (style.type == 'i' || style.type == 'u') style.type = 'd';
    if (std::string_view("dxXoeEfFgG").find(style.type) == std::string_view::npos) {
      fail(fmt::format("a format with '%{}' is not supported.", style.type));
    }
    require_defined(value);
    if (!value.is_number())
      fail(fmt::format("a format with '%{}' needs a number, not a value of type '{}'.", style.type,
                       type_name(value)));
    auto shown = value;
    if (value.is(Kind::real) && std::string_view("dxXo").find(style.type) != std::string_view::npos) {
      if (style.type != 'd' || !(std::abs(value.real) < 9e18))
        fail(fmt::format("a format with '%{}' needs an integer.", style.type));
      shown = Value::of(static_cast<std::int64_t>(value.real));
    }
    if (style.type == 'd' && style.precision) fail("a format with '%.nd' is not supported.");
    text_.add(pad(budget, format_number(shown, style), style, '>'));
  }

  Text text_;
  const std::string& format_;
  const Value& values_;
  std::size_t position_ = 0;
  std::size_t taken_ = 0;
  bool named_ = false;
};

}  // namespace

Value percent_format(Budget& budget, const Value& format, const Value& values) {
  return Value::text(budget, PercentWriter(budget, text_of(format), values).run(), format.markup);
}

}  // namespace lockstep::jinja
