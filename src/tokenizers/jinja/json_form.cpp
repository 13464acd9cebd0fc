#include "tokenizers/jinja/json_form.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "tokenizers/jinja/comparison.hpp"
#include "tokenizers/jinja/text_form.hpp"
#include "tokenizers/utf8.hpp"

namespace lockstep::jinja {
namespace {

constexpr std::size_t kDeepestJson = 150;

std::string number_as_json(const Value& value) {
  if (value.is(Kind::boolean)) return value.integer != 0 ? "true" : "false";
  if (value.is(Kind::integer)) return fmt::format("{}", value.integer);
  if (std::isnan(value.real)) return "NaN";
  if (std::isinf(value.real)) return value.real > 0 ? "Infinity" : "-Infinity";
  return float_repr(value.real);
}

std::string escape_character(char32_t code) {
  if (code < 0x10000) return fmt::format("\\u{:04x}", static_cast<std::uint32_t>(code));
  const auto rest = static_cast<std::uint32_t>(code - 0x10000);
  return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
}

void add_string(Text& text, const std::string& string, bool ensure_ascii) {
  std::string quoted = "\"";
  for (std::size_t position = 0; position < string.size();) {
    const auto begin = position;
    const auto code = tokenizer::next_character(string, position);
    switch (code) {
      case U'"':
        quoted += "\\\"";
        break;
      case U'\\':
        quoted += "\\\\";
        break;
      case U'\n':
        quoted += "\\n";
        break;
      case U'\r':
        quoted += "\\r";
        break;
      case U'\t':
        quoted += "\\t";
        break;
      case U'\f':
        quoted += "\\f";
        break;
      case U'\b':
        quoted += "\\b";
        break;
      default:
        if (code < 0x20 || (ensure_ascii && code > 0x7E)) {
          quoted += code == 0x7F ? "\x7F" : escape_character(code);
        } else {
          quoted.append(string, begin, position - begin);
        }
    }
  }
  text.add(quoted + '"');
}

/// Writes values one after the other.
class JsonWriter {
 public:
  JsonWriter(Budget& budget, const JsonStyle& style) : text_(budget), style_(style) {}

  void write(const Value& value) {
    text_.budget().step();
    switch (value.kind) {
      case Kind::none:
        return text_.add("null");
      case Kind::boolean:
      case Kind::integer:
      case Kind::real:
        return text_.add(number_as_json(value));
      case Kind::text:
        return add_string(text_, text_of(value), style_.ensure_ascii);
      case Kind::list:
      case Kind::tuple:
        return write_list(items_of(value));
      case Kind::dict:
        return write_dict(value);
      default:
        fail(fmt::format("a value of type '{}' cannot be written as JSON.", type_name(value)));
    }
  }
  std::string take() { return text_.take(); }

 private:
  void write_list(const Values& items) {
    if (items.empty()) return text_.add("[]");
    open("[");
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) separate();
      write(items[i]);
    }
    close("]");
  }

  void write_dict(const Value& dict) {
    auto entries = dict.as<DictObject>().entries;
    if (entries.empty()) return text_.add("{}");
    auto& budget = text_.budget();
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [&](const auto& a, const auto& b) { return is_less(budget, a.first, b.first); });
    }
    open("{");
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) separate();
      write_key(entries[i].first);
      text_.add(style_.key_separator);
      write(entries[i].second);
    }
    close("}");
  }

  void write_key(const Value& key) {
    if (key.is(Kind::text)) return add_string(text_, text_of(key), style_.ensure_ascii);
    if (!key.is(Kind::none) && !key.is_number()) {
      fail(fmt::format("a key of type '{}' cannot be written as JSON.", type_name(key)));
    }
    text_.add("\"");
    write(key);
    text_.add("\"");
  }

  void new_line() {
    if (!style_.indent) return;
    text_.add("\n");
    text_.add(depth_, *style_.indent);
  }
  void open(std::string_view sign) {
    text_.add(sign);
    ++depth_;
    new_line();
  }
  void close(std::string_view sign) {
    --depth_;
    new_line();
    text_.add(sign);
  }
  void separate() {
    text_.add(style_.item_separator);
    new_line();
  }

  Text text_;
  const JsonStyle& style_;
  std::size_t depth_ = 0;
};

Value value_of(Budget& budget, const nlohmann::ordered_json& json, std::size_t depth) {
  budget.step();
  if (depth > kDeepestJson)
    fail(fmt::format("the conversation's lists are nested more than {} levels deep.", kDeepestJson));
  const auto text = [&](const std::string& string) {
    if (tokenizer::check_utf8(string).valid != string.size())
      fail("a text of the conversation is not valid UTF-8.");
    return Value::text(budget, string);
  };
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::boolean:
      return Value::of(json.get<bool>());
    case nlohmann::ordered_json::value_t::number_float:
      return Value::of(json.get<double>());
    case nlohmann::ordered_json::value_t::number_integer:
      return Value::of(json.get<std::int64_t>());
    case nlohmann::ordered_json::value_t::number_unsigned:
      if (json.get<std::uint64_t>() >> 63 != 0) {
        fail(fmt::format("the integer {} of the conversation is beyond 64 bits: give it as a text.",
                         json.get<std::uint64_t>()));
      }
      return Value::of(static_cast<std::int64_t>(json.get<std::uint64_t>()));
    case nlohmann::ordered_json::value_t::string:
      return text(json.get_ref<const std::string&>());
    case nlohmann::ordered_json::value_t::array: {
      Values items;
      for (const auto& item : json) items.push_back(value_of(budget, item, depth + 1));
      return make_list(budget, std::move(items));
    }
    case nlohmann::ordered_json::value_t::object: {
      std::vector<std::pair<Value, Value>> entries;
      for (const auto& [key, item] : json.items())
        entries.emplace_back(text(key), value_of(budget, item, depth + 1));
      return make_dict(budget, std::move(entries));
    }
    default:
      return Value::none();
  }
}

}  // namespace

std::string to_json(Budget& budget, const Value& value, const JsonStyle& style) {
  JsonWriter writer(budget, style);
  writer.write(value);
  return writer.take();
}

Value from_json(Budget& budget, const nlohmann::ordered_json& json) { return value_of(budget, json, 0); }

}  // namespace lockstep::jinja
