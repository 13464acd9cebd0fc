#include "tokenizers/jinja/brace_format.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "tokenizers/jinja/access.hpp"
#include "tokenizers/jinja/characters.hpp"
#include "tokenizers/jinja/number_format.hpp"
#include "tokenizers/jinja/text_form.hpp"

namespace lockstep::jinja {
namespace {

std::optional<std::int64_t> number_in(std::string_view text) {
  std::int64_t number = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || end.ec != std::errc() || end.ptr != text.data() + text.size() || text[0] == '-')
    return std::nullopt;
  return number;
}

bool is_align(char sign) { return sign == '<' || sign == '>' || sign == '^'; }

std::size_t take_count(std::string_view& spec) {
  std::size_t count = 0;
  while (!spec.empty() && spec[0] >= '0' && spec[0] <= '9') {
    count = count * 10 + static_cast<std::size_t>(spec[0] - '0');
    if (count > 1'000'000'000) fail("format(): a field is too wide.");
    spec.remove_prefix(1);
  }
  return count;
}

FieldStyle style_of(std::string_view spec) {
  FieldStyle style;
  const auto take = [&](char sign) {
    if (spec.empty() || spec[0] != sign) return false;
    spec.remove_prefix(1);
    return true;
  };
  if (spec.size() > 1 && is_align(spec[1])) {
    style.fill = spec[0];
    spec.remove_prefix(1);
  }
  if (!spec.empty() && is_align(spec[0])) {
    style.align = spec[0];
    spec.remove_prefix(1);
  }
  style.plus = take('+');
  if (!style.plus && !take('-')) style.blank = take(' ');
  style.alternate = take('#');
  style.zero = take('0');
  if (style.zero && style.align != 0 && style.fill == ' ') style.fill = '0';
  style.width = take_count(spec);
  style.grouped = take(',');
  if (take('.')) style.precision = take_count(spec);
  if (!spec.empty()) {
    style.type = spec[0];
    spec.remove_prefix(1);
  }
  if (!spec.empty()) fail("format(): a format specification is not supported.");
  return style;
}

/// Writes a format's text and fields one after the other.
class BraceWriter {
 public:
  BraceWriter(Budget& budget, std::string_view format, const Arguments& arguments)
      : text_(budget), format_(format), arguments_(arguments) {}

  std::string run() {
    std::size_t position = 0;
    while (position < format_.size()) {
      const auto mark = std::min(format_.find_first_of("{}", position), format_.size());
      text_.add(format_.substr(position, mark - position));
      if (mark == format_.size()) break;
      position = mark + 1;
      if (position < format_.size() && format_[position] == format_[mark]) {
        text_.add(format_.substr(position++, 1));
        continue;
      }
      if (format_[mark] == '}') fail("format(): a '}' stands alone.");
      const auto end = format_.find('}', position);
      if (end == std::string_view::npos) fail("format(): a field is not closed.");
      write_field(format_.substr(position, end - position));
      position = end + 1;
    }
    return text_.take();
  }

 private:
  void write_field(std::string_view field) {
    if (field.find('{') != std::string_view::npos) fail("format(): fields within fields are not supported.");
    const auto colon = std::min(field.find(':'), field.size());
    auto name = field.substr(0, colon);
    const auto spec = field.substr(std::min(colon + 1, field.size()));
    char conversion = 0;
    if (name.size() >= 2 && name[name.size() - 2] == '!') {
      conversion = name.back();
      name.remove_suffix(2);
      if (conversion != 's' && conversion != 'r')
        fail("format(): only the conversions !s and !r are supported.");
    }
    write_value(value_of(name), conversion, spec);
  }

  Value value_of(std::string_view name) {
    const auto end = std::min(name.find_first_of(".["), name.size());
    const auto first = name.substr(0, end);
    Value value;
    auto position = number_in(first);
    if (position || first.empty()) {
      if (numbered_.value_or(position.has_value()) != position.has_value())
        fail("format(): either all fields have numbers, or none.");
      numbered_ = position.has_value();
    }
    if (first.empty()) position = next_++;
    if (position) {
      if (static_cast<std::size_t>(*position) >= arguments_.positional.size())
        fail("format() has more fields than arguments.");
      value = arguments_.positional[static_cast<std::size_t>(*position)];
    } else {
      const auto found = std::find_if(arguments_.named.begin(), arguments_.named.end(),
                                      [&](const auto& one) { return one.first == first; });
      if (found == arguments_.named.end())
        fail(fmt::format("format() needs the argument '{}'.", first.substr(0, 100)));
      value = found->second;
    }
    return follow(value, name.substr(end));
  }

  Value follow(Value value, std::string_view path) {
    auto& budget = text_.budget();
    while (!path.empty()) {
      budget.step();
      const bool is_attribute = path[0] == '.';
      const auto end = std::min(is_attribute ? path.find_first_of(".[", 1) : path.find(']'), path.size());
      const auto name = std::string(path.substr(1, end - 1));
      if (is_attribute) {
        value = get_attribute(budget, value, name);
      } else {
        const auto position = number_in(name);
        value = get_item(budget, value, position ? Value::of(*position) : Value::text(budget, name));
      }
      path.remove_prefix(std::min(end + (is_attribute ? 0 : 1), path.size()));
    }
    return value;
  }

  void write_value(const Value& value, char conversion, std::string_view spec) {
    auto& budget = text_.budget();
    if (spec.empty() && conversion != 'r') return text_.add(to_text(budget, value));
    auto style = style_of(spec);
    if (conversion == 0 && value.is_number() && style.type != 's' &&
        (style.type != 0 || !value.is(Kind::boolean))) {
      if (value.is(Kind::real) && style.type == 0)
        fail("format(): give the type of a float's field: 'f', 'e' or 'g'.");
      if (style.type == 0) style.type = 'd';
      if (std::string_view("dxXobeEfFgG").find(style.type) == std::string_view::npos ||
          (value.is(Kind::real) && std::string_view("dxXob").find(style.type) != std::string_view::npos)) {
        fail(fmt::format("format(): the type '{}' does not suit a value of type '{}'.", style.type,
                         type_name(value)));
      }
      return text_.add(pad(budget, format_number(value, style), style, '>'));
    }
    if (style.type != 0 && style.type != 's')
      fail(fmt::format("format(): the type '{}' does not suit a value of type '{}'.", style.type,
                       type_name(value)));
    auto shown = conversion == 'r' ? to_repr(budget, value) : to_text(budget, value);
    if (style.precision) shown.resize(byte_of_character(shown, *style.precision));
    if (style.zero && style.align == 0) style.fill = '0';
    style.zero = false;
    text_.add(pad(budget, std::move(shown), style, '<'));
  }

  Text text_;
  std::string_view format_;
  const Arguments& arguments_;
  std::int64_t next_ = 0;
  /// Whether fields have numbers, once there is one.
  std::optional<bool> numbered_;
};

}  // namespace

std::string brace_format(Budget& budget, const std::string& format, const Arguments& arguments) {
  return BraceWriter(budget, format, arguments).run();
}

}  // namespace lockstep::jinja
