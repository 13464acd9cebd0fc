#include <algorithm>

#include "lockstep/core/options.hpp"
#include "option_values.hpp"

namespace lockstep {
namespace {

constexpr std::size_t kTextColumn = 30;
constexpr std::size_t kWidth = 100;

/// Adds `text` word by word, beginning at `column` of a line and going on at kTextColumn of the next ones.
void append_wrapped(std::string& out, const std::string& text, std::size_t column, std::size_t indentation) {
  std::size_t start = 0;
  bool first = true;
  while (start < text.size()) {
    const std::size_t end = std::min(text.find(' ', start), text.size());
    const std::size_t length = end - start;
    if (!first && column + 1 + length > kWidth) {
      out += '\n' + std::string(indentation, ' ');
      column = indentation;
    } else if (!first) {
      out += ' ';
      ++column;
    }
    out.append(text, start, length);
    column += length;
    first = false;
    start = end + 1;
  }
  out += '\n';
}

std::string flags_text(const OptionSpec& spec) {
  std::string text = spec.short_name == 0 ? "" : std::string("-") + spec.short_name + ", ";
  if (!spec.is_switch()) return text + "--" + spec.name + " " + metavar_of(spec);
  return text + (spec.name.starts_with("no-") ? "--" : "--[no-]") + spec.name;
}

/// The default as a reader wants it, or an empty text when there is none to speak of.
std::string default_text(const OptionSpec& spec, OptionField field) {
  const std::string text = value_text(field).value_or("");
  if (!spec.is_switch() || text.empty()) return text;
  return text == "true" ? "on" : "off";
}

std::string bracket_text(const OptionSpec& spec, OptionField field) {
  OptionSpec shown = spec;
  if (spec.metavar.empty()) shown.choices.clear();
  std::erase_if(shown.checks, [](const OptionCheck& check) { return !check.in_help; });
  std::string text = demands_text(shown);
  if (spec.required) text += text.empty() ? "required" : "; required";
  const std::string value = default_text(spec, field);
  if (!value.empty()) text += (text.empty() ? "default: " : "; default: ") + value;
  return text.empty() ? "" : " [" + text + "]";
}

void append_option(std::string& out, const std::string& flags, const std::string& text) {
  std::string line = "  " + flags;
  if (line.size() + 2 > kTextColumn) {
    out += line + '\n';
    line.clear();
  }
  line.resize(kTextColumn, ' ');
  out += line;
  append_wrapped(out, text, kTextColumn, kTextColumn);
}

std::vector<std::string> section_titles(const std::vector<OptionSpec>& specs) {
  std::vector<std::string> titles;
  for (const auto& spec : specs) {
    if (!spec.refusal.empty() || spec.section.empty()) continue;
    if (std::find(titles.begin(), titles.end(), spec.section) == titles.end()) titles.push_back(spec.section);
  }
  return titles;
}

/// A cell of a Markdown table: no bar of the text ends it.
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

std::string OptionSet::usage() const {
  std::string text = program_ + (specs_.empty() ? "" : " [options]");
  for (const auto& argument : arguments_)
    text += argument.required ? " " + argument.name : " [" + argument.name + "]";
  return text;
}

std::string OptionSet::help(void* defaults) const {
  std::string out = "usage: " + usage() + "\n\n";
  append_wrapped(out, description_, 0, 0);
  if (!arguments_.empty()) out += '\n';
  for (const auto& argument : arguments_) append_option(out, argument.name, argument.help);
  const auto append_section = [&](const std::string& title) {
    for (const auto& spec : specs_) {
      if (spec.section != title || !spec.refusal.empty()) continue;
      const OptionField field = spec.field(defaults);
      append_option(out, flags_text(spec), spec.help + bracket_text(spec, field));
    }
  };
  out += "\noptions:\n";
  append_option(out, "-h, --help", "Shows this text and ends.");
  append_section("");
  for (const auto& title : section_titles(specs_)) {
    out += '\n' + title + ":\n";
    append_section(title);
  }
  return out;
}

std::string OptionSet::markdown_table(void* defaults) const {
  std::string out = "| flag | JSON key | value | default | meaning |\n| --- | --- | --- | --- | --- |\n";
  for (const auto& spec : specs_) {
    if (!spec.refusal.empty()) continue;
    const OptionField field = spec.field(defaults);
    const std::string alias = spec.short_name == 0 ? "" : std::string("`-") + spec.short_name + "`, ";
    out += "| " + alias + code_cell("--" + spec.name) + " | " + code_cell(spec.key()) + " | " +
           cell(expected_text(spec)) + " | " + code_cell(default_text(spec, field)) + " | " +
           cell(spec.help) + " |\n";
  }
  return out;
}

}  // namespace lockstep
