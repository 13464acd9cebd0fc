// Without regular expressions, which would add a millisecond to every start.
#define CXXOPTS_NO_REGEX
// No word of a command line holds a NUL, so that a word is never split into several items.
#define CXXOPTS_VECTOR_DELIMITER '\0'
#include <cxxopts.hpp>
#undef CXXOPTS_VECTOR_DELIMITER
#undef CXXOPTS_NO_REGEX

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>

#include "core/option_spelling.hpp"
#include "core/option_values.hpp"
#include "core/text.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/options.hpp"

namespace lockstep {
namespace {

using Words = std::vector<std::string>;

/// The name of a positional argument in cxxopts's result. No flag can have it.
std::string argument_key(const OptionSpec& argument) { return "<" + argument.name + ">"; }

bool is_list(const OptionSpec& spec) { return std::holds_alternative<Words*>(spec.type); }

/// A value of an option and its source: "--epochs", "-e" or "PET_EPOCHS".
struct Setting {
  const OptionSpec* option;
  std::string source;
  std::string value;
};

std::vector<Setting> environment_settings(const OptionSet& set, const Environment& environment) {
  std::vector<Setting> settings;
  if (set.grammar().environment_prefix.empty()) return settings;
  for (const auto& spec : set.specs()) {
    if (!spec.from_environment) continue;
    const std::string name = set.grammar().environment_prefix + to_upper_case(spec.key());
    std::string value = find_variable(environment, name).value_or("");
    // Blanks may be part of an item of a list.
    if (!is_list(spec)) value = trim_blanks(value);
    // An empty variable sets nothing, and a rejected switch may be set to 0.
    if (value.empty() || (!spec.refusal.empty() && spec.is_switch() && value == "0")) continue;
    settings.push_back({&spec, name, std::move(value)});
  }
  return settings;
}

/// Parses command lines with cxxopts. Each spelling of a flag ("epochs", "e", "no-resume") is an option of
/// its own there, so that the library's result names the spelling that was used, for messages.
class CommandLine {
 public:
  explicit CommandLine(const OptionSet& set) : options_(set.program()) {
    for (const auto& spec : set.specs()) {
      const char* value_alone = spec.is_switch() ? "true" : nullptr;
      add_flag(spec, spec.name, value_alone);
      if (spec.short_name != 0) add_flag(spec, std::string{spec.short_name}, value_alone);
      if (find_negated_switch(set, "no-" + spec.name) != nullptr) add_flag(spec, "no-" + spec.name, "false");
    }
    Words positional;
    for (const auto& argument : set.arguments()) {
      positional.push_back(argument_key(argument));
      options_.add_option("", "", cxxopts::OptionNames{positional.back()}, "",
                          is_list(argument) ? cxxopts::value<Words>() : cxxopts::value<std::string>(), "");
    }
    options_.parse_positional(positional);
  }

  cxxopts::ParseResult parse(const Words& words) {
    std::vector<const char*> argv{options_.program().c_str()};
    for (const auto& word : words) argv.push_back(word.c_str());
    return options_.parse(static_cast<int>(argv.size()), argv.data());
  }

  /// The flags of the result in the order of the command line; the last of repeated ones wins.
  std::vector<Setting> list_settings(const cxxopts::ParseResult& result) const {
    std::vector<Setting> settings;
    for (const auto& each : result.arguments()) {
      const auto flag = flags_.find(each.key());
      if (flag == flags_.end()) continue;
      const auto earlier = std::ranges::find(settings, flag->second, &Setting::option);
      if (flag->second->accumulates && earlier != settings.end()) {
        earlier->value += "," + each.value();
        continue;
      }
      const std::string dashes = each.key().size() == 1 ? "-" : "--";
      settings.push_back({flag->second, dashes + each.key(), each.value()});
    }
    return settings;
  }

 private:
  /// `value_alone`: the value of a flag without one; null if it needs one.
  void add_flag(const OptionSpec& spec, const std::string& flag, const char* value_alone) {
    auto value = cxxopts::value<std::string>();
    if (value_alone != nullptr) value->implicit_value(value_alone);
    const bool letter = flag.size() == 1;
    options_.add_option("", letter ? flag : "", letter ? cxxopts::OptionNames{} : cxxopts::OptionNames{flag},
                        "", value, "");
    flags_[flag] = &spec;
  }

  cxxopts::Options options_;
  std::map<std::string, const OptionSpec*> flags_;
};

/// Of the environment or of the command line, which overrides it.
void apply(const std::vector<Setting>& settings, void* options, ParseReport& report) {
  FieldValues values;
  for (const auto& [option, source, value] : settings) {
    if (!option->refusal.empty())
      throw UsageError(fmt::format("{} is not supported: {}", source, option->refusal));
    assign_text(*option, option->field(options), value, source);
    values.note(*option, option->field(options), source);
    report.given[option->name] = source;
  }
  values.check();
}

/// The JSON file that the settings name, otherwise the default one; empty if there is none.
std::string config_file(const OptionSet& set, const std::vector<Setting>& settings, void* options) {
  const OptionSpec* config =
      set.grammar().config_option.empty() ? nullptr : set.find(set.grammar().config_option);
  if (config == nullptr) return "";
  const auto last = std::find_if(settings.rbegin(), settings.rend(),
                                 [config](const Setting& setting) { return setting.option == config; });
  return last == settings.rend() ? value_text(config->field(options)).value_or("") : last->value;
}

void apply_arguments(const OptionSet& set, const cxxopts::ParseResult& result, void* options) {
  for (const auto& argument : set.arguments()) {
    const std::string key = argument_key(argument);
    if (result.count(key) == 0) {
      if (!argument.required) continue;
      throw UsageError(
          fmt::format("the {} is missing: expected {}. See --help.", argument.name, set.usage()));
    }
    const OptionField field = argument.field(options);
    if (is_list(argument)) {
      *std::get<Words*>(field) = result[key].as<Words>();
    } else {
      assign_text(argument, field, result[key].as<std::string>(), argument.name);
    }
  }
  if (result.unmatched().empty()) return;
  const std::string& word = result.unmatched().front();
  throw UsageError(
      fmt::format("unexpected argument '{}'{}: {}. See --help; a value with blanks needs quotes.", word,
                  word.starts_with("-") ? " after '--'" : "",
                  set.arguments().empty() ? set.program() + " takes flags only" : "expected " + set.usage()));
}

void apply_file(const OptionSet& set, const std::string& file, void* options) {
  const std::string source = fmt::format("--{} {}: ", set.grammar().config_option, file);
  std::ifstream stream(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (!stream) throw UsageError(source + "the file cannot be read");
  try {
    set.from_json_text(options, text);
  } catch (const UsageError& error) {
    throw UsageError(source + error.what());
  }
}

}  // namespace

ParseReport OptionSet::parse(void* options, const Words& words, const Environment& environment) const {
  ParseReport report;
  CommandLine command_line(*this);
  const cxxopts::ParseResult result = command_line.parse(spell_out(*this, words));
  const std::vector<Setting> flags = command_line.list_settings(result);
  report.help = std::ranges::any_of(flags, [](const Setting& flag) { return flag.option->name == "help"; });
  if (report.help) return report;
  const std::vector<Setting> variables = environment_settings(*this, environment);
  std::vector<Setting> settings = variables;
  settings.insert(settings.end(), flags.begin(), flags.end());
  const std::string file = config_file(*this, settings, options);
  if (!file.empty()) apply_file(*this, file, options);
  apply(variables, options, report);
  apply(flags, options, report);
  apply_arguments(*this, result, options);
  for (const auto& spec : specs_) {
    if (!spec.required || !value_text(spec.field(options)).value_or("").empty()) continue;
    throw UsageError(fmt::format("--{} is required: {} See --help.", spec.name, spec.help));
  }
  return report;
}

}  // namespace lockstep
