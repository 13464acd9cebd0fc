#include "lockstep/core/options.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "core/json_text.hpp"
#include "core/option_values.hpp"
#include "core/suggestion.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

/// This many fit on two lines.
constexpr std::size_t kKeysListed = 12;

using Json = nlohmann::json;

constexpr std::size_t kTextColumn = 30;
constexpr std::size_t kWidth = 100;

OptionSetting check(std::string expected, std::function<bool(const Json&)> accepts, bool in_help = true) {
  return [check = OptionCheck{std::move(expected), std::move(accepts), in_help}](OptionSpec& spec) {
    spec.checks.push_back(check);
  };
}

/// `long double` holds each 64-bit integer exactly on x86-64 and aarch64.
template <class Accepts>
OptionSetting check_number(std::string expected, Accepts accepts) {
  return check(std::move(expected), [accepts](const Json& value) {
    return value.is_number() && accepts(value.get<long double>());
  });
}

template <class Compare>
OptionSetting check_bound(const char* words, double bound, Compare compare) {
  return check_number(fmt::format("{} {}", words, number_text(bound)),
                      [compare, bound](long double x) { return compare(x, bound); });
}

/// Wraps `text` at blanks; all lines but the first are indented.
std::string wrapped(std::string text, std::size_t indentation) {
  const std::size_t width = kWidth - indentation;
  for (std::size_t line = 0; text.size() - line > width;) {
    std::size_t blank = text.rfind(' ', line + width);
    if (blank == std::string::npos || blank < line) blank = text.find(' ', line + width);
    if (blank == std::string::npos) break;
    text.replace(blank, 1, "\n" + std::string(indentation, ' '));
    line = blank + 1 + indentation;
  }
  return text + '\n';
}

std::string flags_text(const OptionSpec& spec) {
  const std::string letter = spec.short_name == 0 ? "" : fmt::format("-{}, ", spec.short_name);
  if (!spec.is_switch()) return fmt::format("{}--{} {}", letter, spec.name, metavar_of(spec));
  const bool negatable = spec.field && !spec.name.starts_with("no-");
  return fmt::format("{}--{}{}", letter, negatable ? "[no-]" : "", spec.name);
}

/// The default for display; empty if there is none.
std::string default_text(const OptionSpec& spec, OptionField field) {
  const std::string text = value_text(field).value_or("");
  if (!spec.is_switch() || text.empty()) return text;
  return text == "true" ? "on" : "off";
}

std::string bracket_text(const OptionSpec& spec, OptionField field) {
  std::string text = demands_text(spec, true);
  if (spec.required) text += text.empty() ? "required" : "; required";
  const std::string value = default_text(spec, field);
  if (!value.empty()) text += (text.empty() ? "default: " : "; default: ") + value;
  return text.empty() ? "" : " [" + text + "]";
}

/// A line of `--help`; long flags have a line of their own.
std::string line_of(const std::string& flags, const std::string& text) {
  const std::string head = "  " + flags;
  const std::string line = wrapped(text, kTextColumn);
  if (head.size() + 2 > kTextColumn) return fmt::format("{}\n{:{}}{}", head, "", kTextColumn, line);
  return fmt::format("{:<{}}{}", head, kTextColumn, line);
}

/// Escapes a cell of a Markdown table.
std::string cell(const std::string& text) {
  std::string result;
  for (const char letter : text) {
    if (letter == '|') result += '\\';
    result += letter == '\n' ? ' ' : letter;
  }
  return result;
}

std::string code_cell(const std::string& text) { return text.empty() ? "" : "`" + cell(text) + "`"; }

}  // namespace

OptionSetting at_least(double bound) { return check_bound("at least", bound, std::greater_equal<>()); }
OptionSetting at_most(double bound) { return check_bound("at most", bound, std::less_equal<>()); }
OptionSetting more_than(double bound) { return check_bound("more than", bound, std::greater<>()); }
OptionSetting less_than(double bound) { return check_bound("less than", bound, std::less<>()); }
OptionSetting between(double low, double high) {
  return check_number(fmt::format("from {} to {}", number_text(low), number_text(high)),
                      [low, high](long double x) { return x >= low && x <= high; });
}
OptionSetting matching(std::string expected, std::function<bool(const std::string&)> accepts) {
  return check(std::move(expected), [accepts = std::move(accepts)](const Json& value) {
    return value.is_string() && accepts(value.get_ref<const std::string&>());
  });
}
OptionSetting not_empty() {
  return check(
      "a non-empty string", [](const Json& value) { return value.is_string() && value != ""; }, false);
}

std::string OptionSpec::key() const {
  std::string result = name;
  std::replace(result.begin(), result.end(), '-', '_');
  return result;
}

bool OptionSpec::is_switch() const {
  return std::holds_alternative<bool*>(type) || std::holds_alternative<std::optional<bool>*>(type);
}

OptionSet::OptionSet(std::string program, std::string description, std::shared_ptr<void> defaults)
    : program_(std::move(program)), description_(std::move(description)), defaults_(std::move(defaults)) {
  OptionSpec help;
  help.name = "help";
  help.short_name = 'h';
  help.help = "Show this help and exit.";
  help.from_environment = false;
  specs_.push_back(std::move(help));
}

void OptionSet::add(OptionSpec spec) {
  const auto no_letter = spec.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-");
  if (spec.name.size() < 2 || spec.name.front() == '-' || no_letter != std::string::npos) {
    throw std::logic_error(
        fmt::format("option '{}': a name is made of two or more of a-z, 0-9 and hyphens, and does not begin "
                    "with a hyphen",
                    spec.name));
  }
  if (spec.short_name != 0 && std::isalpha(static_cast<unsigned char>(spec.short_name)) == 0)
    throw std::logic_error(fmt::format("option '{}': its one-letter alias is not a letter", spec.name));
  for (const auto& other : specs_) {
    const bool same_letter = spec.short_name != 0 && spec.short_name == other.short_name;
    if (other.name == spec.name || same_letter)
      throw std::logic_error(
          fmt::format("option '{}': the name or its one-letter alias is taken", spec.name));
  }
  if (spec.section.empty()) spec.section = section_;
  specs_.push_back(std::move(spec));
}

const OptionSpec* OptionSet::find(std::string_view name) const {
  const auto same = [](char a, char b) { return a == b || (a == '-' && b == '_'); };
  const auto found = std::ranges::find_if(
      specs_, [&](const OptionSpec& spec) { return std::ranges::equal(spec.name, name, same); });
  return found == specs_.end() ? nullptr : &*found;
}

void OptionSet::check(void* options) const {
  for (const auto& spec : specs_) {
    if (spec.field) check_value(spec, spec.field(options));
  }
}

void OptionSet::to_json(void* options, nlohmann::json& json) const {
  json = nlohmann::json::object();
  for (const auto& spec : specs_) {
    if (spec.field) json[spec.key()] = json_of(spec.field(options));
  }
}

void OptionSet::from_json(void* options, const nlohmann::json& json) const {
  if (!json.is_object()) {
    throw UsageError(
        fmt::format("options of {}: expected a JSON object, not {}.", program_, json.type_name()));
  }
  std::vector<std::string> keys;
  for (const auto& spec : specs_) {
    if (spec.field) keys.push_back(spec.key());
  }
  FieldValues values;
  for (const auto& [key, value] : json.items()) {
    const OptionSpec* spec = find(key);
    if (spec == nullptr || !spec->field) {
      const std::string known =
          keys.size() > kKeysListed ? "" : fmt::format(" Known: {}.", fmt::join(keys, ", "));
      throw UsageError(fmt::format("unknown JSON key '{}' among the options of {}{}.{}", key, program_,
                                   did_you_mean(key, keys), known));
    }
    assign_json(*spec, spec->field(options), value);
    values.note(*spec, spec->field(options), fmt::format("JSON key '{}'", spec->key()));
  }
  values.check();
}

std::string OptionSet::to_json_text(void* options) const {
  nlohmann::json json;
  to_json(options, json);
  return json_text(json, 2);
}

void OptionSet::from_json_text(void* options, std::string_view text) const {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded()) throw UsageError(fmt::format("options of {}: the text is not JSON.", program_));
  from_json(options, json);
}

std::string OptionSet::usage() const {
  std::string text = program_ + (specs_.size() == 1 ? "" : " [options]");
  for (const auto& argument : arguments_)
    text += argument.required ? " " + argument.name : " [" + argument.name + "]";
  return text;
}

std::string OptionSet::help() const {
  std::string out = fmt::format("usage: {}\n\n{}", usage(), wrapped(description_, 0));
  if (!arguments_.empty()) out += '\n';
  for (const auto& argument : arguments_) out += line_of(argument.name, argument.help);
  // In the order of their first options; the first is the section of `--help`: "".
  std::vector<std::pair<std::string, std::string>> sections;
  for (const auto& spec : specs_) {
    if (!spec.refusal.empty()) continue;
    auto section =
        std::ranges::find_if(sections, [&](const auto& each) { return each.first == spec.section; });
    if (section == sections.end()) section = sections.insert(section, {spec.section, ""});
    const std::string bracket = spec.field ? bracket_text(spec, spec.field(defaults_.get())) : "";
    section->second += line_of(flags_text(spec), spec.help + bracket);
  }
  for (const auto& [title, lines] : sections)
    out += fmt::format("\n{}:\n{}", title.empty() ? "options" : title, lines);
  return out;
}

std::string OptionSet::markdown_table() const {
  std::string out = "| flag | JSON key | value | default | meaning |\n| --- | --- | --- | --- | --- |\n";
  for (const auto& spec : specs_) {
    if (!spec.field) continue;
    const std::string alias = spec.short_name == 0 ? "" : fmt::format("`-{}`, ", spec.short_name);
    out += fmt::format("| {}{} | {} | {} | {} | {} |\n", alias, code_cell("--" + spec.name),
                       code_cell(spec.key()), cell(expected_text(spec)),
                       code_cell(default_text(spec, spec.field(defaults_.get()))), cell(spec.help));
  }
  return out;
}

}  // namespace lockstep
