#include "lockstep/core/options.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "lockstep/core/error.hpp"
#include "suggestion.hpp"

namespace lockstep {
namespace {

/// This many fit on two lines.
constexpr std::size_t kKeysListed = 12;

using Json = nlohmann::json;

constexpr std::size_t kTextColumn = 30;
constexpr std::size_t kWidth = 100;

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
  if (!spec.is_switch()) return fmt::format("{}--{} {}", letter, spec.name, spec.placeholder());
  const bool negatable = spec.field && !spec.name.starts_with("no-");
  return fmt::format("{}--{}{}", letter, negatable ? "[no-]" : "", spec.name);
}

/// The default for display; empty if there is none.
std::string default_text(const OptionSpec& spec, void* defaults) {
  const std::string text = spec.text(defaults);
  if (!spec.is_switch() || text.empty()) return text;
  return text == "true" ? "on" : "off";
}

std::string bracket_text(const OptionSpec& spec, void* defaults) {
  if (!spec.field) return "";
  std::vector<std::string> parts{spec.demands(true), spec.required ? "required" : ""};
  const std::string value = default_text(spec, defaults);
  parts.push_back(value.empty() ? "" : "default: " + value);
  std::erase(parts, "");
  return parts.empty() ? "" : fmt::format(" [{}]", fmt::join(parts, "; "));
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

OptionSet::OptionSet(std::string program_name, std::string text, std::shared_ptr<void> options)
    : program(std::move(program_name)), description(std::move(text)), defaults(std::move(options)) {
  OptionSpec help;
  help.name = "help";
  help.short_name = 'h';
  help.help = "Show this help and exit.";
  help.from_environment = false;
  specs.push_back(std::move(help));
}

void OptionSet::add(OptionSpec spec) {
  const auto no_letter = spec.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-");
  if (spec.name.size() < 2 || spec.name.front() == '-' || no_letter != std::string::npos) {
    throw std::logic_error(
        fmt::format("option '{}': a name is made of two or more of a-z, 0-9 and hyphens, and does not begin "
                    "with a hyphen",
                    spec.name));
  }
  for (const auto& other : specs) {
    const bool same_letter = spec.short_name != 0 && spec.short_name == other.short_name;
    if (other.name == spec.name || same_letter)
      throw std::logic_error(
          fmt::format("option '{}': the name or its one-letter alias is taken", spec.name));
  }
  if (spec.section.empty()) spec.section = current_section;
  specs.push_back(std::move(spec));
}

const OptionSpec* OptionSet::find(std::string_view name) const {
  const auto same = [](char a, char b) { return a == b || (a == '-' && b == '_'); };
  const auto found = std::ranges::find_if(
      specs, [&](const OptionSpec& spec) { return std::ranges::equal(spec.name, name, same); });
  return found == specs.end() ? nullptr : &*found;
}

void OptionSet::check(void* options) const {
  for (const auto& spec : specs) {
    if (spec.field) spec.check(options);
  }
}

std::string OptionSet::to_json_text(void* options) const {
  Json json = Json::object();
  for (const auto& spec : specs) {
    if (spec.field) json[spec.key()] = spec.json(options);
  }
  // Strings may contain bytes that are not UTF-8, as file names do; these are replaced.
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

void OptionSet::from_json_text(void* options, std::string_view text) const {
  const auto json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) throw UsageError(fmt::format("options of {}: the text is not JSON.", program));
  if (!json.is_object()) {
    throw UsageError(
        fmt::format("options of {}: expected a JSON object, not {}.", program, json.type_name()));
  }
  std::vector<std::string> keys;
  for (const auto& spec : specs) {
    if (spec.field) keys.push_back(spec.key());
  }
  for (const auto& [key, value] : json.items()) {
    const OptionSpec* spec = find(key);
    if (spec == nullptr || !spec->field) {
      const std::string known =
          keys.size() > kKeysListed ? "" : fmt::format(" Known: {}.", fmt::join(keys, ", "));
      throw UsageError(fmt::format("unknown JSON key '{}' among the options of {}{}.{}", key, program,
                                   did_you_mean(key, keys), known));
    }
    spec->assign_json(options, value);
  }
}

std::string OptionSet::usage() const {
  std::string text = program + (specs.size() == 1 ? "" : " [options]");
  for (const auto& argument : arguments)
    text += argument.required ? " " + argument.name : " [" + argument.name + "]";
  return text;
}

std::string OptionSet::help() const {
  std::string out = fmt::format("usage: {}\n\n{}", usage(), wrapped(description, 0));
  if (!arguments.empty()) out += '\n';
  for (const auto& argument : arguments) out += line_of(argument.name, argument.help);
  // In the order of their first options; the first is the section of `--help`: "".
  std::vector<std::pair<std::string, std::string>> sections;
  for (const auto& spec : specs) {
    if (!spec.refusal.empty()) continue;
    auto section =
        std::ranges::find_if(sections, [&](const auto& each) { return each.first == spec.section; });
    if (section == sections.end()) section = sections.insert(section, {spec.section, ""});
    section->second += line_of(flags_text(spec), spec.help + bracket_text(spec, defaults.get()));
  }
  for (const auto& [title, lines] : sections)
    out += fmt::format("\n{}:\n{}", title.empty() ? "options" : title, lines);
  return out;
}

std::string OptionSet::markdown_table() const {
  std::string out = "| flag | JSON key | value | default | meaning |\n| --- | --- | --- | --- | --- |\n";
  for (const auto& spec : specs) {
    if (!spec.field) continue;
    const std::string alias = spec.short_name == 0 ? "" : fmt::format("`-{}`, ", spec.short_name);
    out += fmt::format("| {}{} | {} | {} | {} | {} |\n", alias, code_cell("--" + spec.name),
                       code_cell(spec.key()), cell(spec.expected()),
                       code_cell(default_text(spec, defaults.get())), cell(spec.help));
  }
  return out;
}

}  // namespace lockstep
