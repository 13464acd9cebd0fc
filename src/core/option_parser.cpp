// Without regular expressions, which would add a millisecond to every start.
#define CXXOPTS_NO_REGEX
#include <cxxopts.hpp>
#undef CXXOPTS_NO_REGEX

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>

#include "core/variables.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/options.hpp"
#include "option_values.hpp"
#include "suggestion.hpp"

namespace lockstep {
namespace {

using Words = std::vector<std::string>;

/// "-3" and "-.5" are values, not flags.
bool looks_like_flag(std::string_view word) {
  if (word.size() < 2 || word[0] != '-') return false;
  const std::size_t digit = word.size() > 2 && word[1] == '.' ? 2 : 1;
  return std::isdigit(static_cast<unsigned char>(word[digit])) == 0;
}

/// Rewrites a command line for cxxopts: each flag becomes one word with its full name and its value
/// ("--name=value"), `--no-x` becomes `--x=false`, and positional arguments move to the end, after "--".
class Rewriter {
 public:
  Rewriter(const OptionSet& set, const Words& given) : set_(set), word_(given.begin()), end_(given.end()) {
    Words positional;
    for (; word_ != end_ && !help; ++word_) {
      if (*word_ == "--") {
        ++word_;
        break;
      }
      if (word_->starts_with("--")) {
        read_long(std::string_view(*word_).substr(2));
      } else if (looks_like_flag(*word_)) {
        read_letters(std::string_view(*word_).substr(1));
      } else if (set_.grammar().stop_at_first_positional) {
        break;
      } else {
        positional.push_back(*word_);
      }
    }
    words.emplace_back("--");
    words.insert(words.end(), positional.begin(), positional.end());
    words.insert(words.end(), word_, end_);
  }

  Words words;
  /// The flags as the user spelled them, in the order of the rewritten ones.
  Words places;
  /// `--help` was found: the words after it were not parsed.
  bool help = false;

 private:
  void read_long(std::string_view body) {
    const auto equals = std::min(body.find('='), body.size());
    std::string name(body.substr(0, equals));
    std::ranges::replace(name, '_', '-');
    std::optional<std::string> value;
    if (equals < body.size()) value = body.substr(equals + 1);
    const auto* negated =
        name.starts_with("no-") && set_.find(name) == nullptr ? set_.find(name.substr(3)) : nullptr;
    if (negated == nullptr || !negated->is_switch() || !negated->field) {
      const OptionSpec& option = resolve(name);
      // Where no word stands alone, one behind a switch is its value, as for Python's parsers: --bf16 True.
      const bool stands_alone = !set_.arguments().empty() || set_.grammar().stop_at_first_positional;
      if (!value && option.is_switch() && option.field && value_follows()) {
        if (!stands_alone)
          value = *++word_;
        else
          refuse_truth_behind(option);
      }
      return add(option, "--" + option.name, value);
    }
    if (value) throw UsageError(fmt::format("--{} takes no value, got '{}'.", name, *value));
    add(*negated, "--" + name, "false");
  }

  void read_letters(std::string_view letters) {
    while (!letters.empty() && !help) {
      const std::string flag{'-', letters.front()};
      const auto option = std::ranges::find(set_.specs(), flag[1], &OptionSpec::short_name);
      if (option == set_.specs().end()) refuse_unknown(flag, std::string(letters));
      letters.remove_prefix(1);
      std::optional<std::string> value;
      if (!option->is_switch() && !letters.empty()) {
        value = letters.substr(letters.front() == '=' ? 1 : 0);
        letters = {};
      }
      add(*option, flag, value);
    }
  }

  void add(const OptionSpec& option, const std::string& place, std::optional<std::string> value) {
    help = help || option.name == "help";
    if (!value && !option.is_switch()) value = next_value(option, place);
    words.push_back("--" + option.name + (value ? "=" + *value : ""));
    places.push_back(place);
  }

  /// `--standalone true ./trainer` would run the program true, which ends at once and well.
  void refuse_truth_behind(const OptionSpec& option) const {
    std::string word = *(word_ + 1);
    std::ranges::transform(word, word.begin(), [](unsigned char letter) { return std::tolower(letter); });
    if (word_ + 2 == end_ || (word != "true" && word != "false")) return;
    throw UsageError(fmt::format("--{0} takes no value, got '{1}': leave '{1}' out; --no-{0} turns it off.",
                                 option.name, *(word_ + 1)));
  }

  bool value_follows() const { return word_ + 1 != end_ && !looks_like_flag(*(word_ + 1)); }

  const std::string& next_value(const OptionSpec& option, const std::string& place) {
    if (value_follows()) return *++word_;
    const auto next = word_ + 1;
    const std::string what_follows =
        next == end_ ? "nothing follows it."
                     : fmt::format("'{0}' follows it. Write a value that begins with '-' as --{1}={0}.",
                                   *next, option.name);
    throw UsageError(
        fmt::format("{} needs a value ({}), but {}", place, expected_text(option), what_follows));
  }

  const OptionSpec& resolve(const std::string& name) const {
    if (const auto* spec = set_.find(name)) return *spec;
    std::vector<const OptionSpec*> candidates;
    Words names;
    for (const auto& spec : set_.specs()) {
      if (!set_.grammar().unique_prefixes || !spec.by_prefix || !spec.name.starts_with(name)) continue;
      candidates.push_back(&spec);
      names.push_back("--" + spec.name);
    }
    if (candidates.empty()) refuse_unknown("--" + name, name);
    if (candidates.size() == 1) return *candidates.front();
    throw UsageError(fmt::format("--{} could be any of {}: write the one that is meant in full.", name,
                                 fmt::join(names, ", ")));
  }

  [[noreturn]] void refuse_unknown(const std::string& flag, const std::string& name) const {
    Words names;
    for (const auto& spec : set_.specs()) {
      names.push_back(spec.name);
      if (spec.is_switch() && spec.field) names.push_back("no-" + spec.name);
    }
    const bool before_a_program =
        set_.grammar().stop_at_first_positional && !std::all_of(word_, end_, looks_like_flag);
    throw UsageError(fmt::format("unknown flag {}{}. {}", flag, did_you_mean(name, names, "--"),
                                 before_a_program
                                     ? "Flags of the program itself come after its name; see --help."
                                     : "See --help for all flags."));
  }

  const OptionSet& set_;
  /// The current word.
  Words::const_iterator word_;
  Words::const_iterator end_;
};

/// A value of an option and its source: "--epochs", "-e" or "PET_EPOCHS".
struct Setting {
  const OptionSpec* option;
  std::string place;
  std::string value;
};

std::vector<Setting> environment_settings(const OptionSet& set, const Environment& environment) {
  std::vector<Setting> settings;
  if (set.grammar().environment_prefix.empty()) return settings;
  for (const auto& spec : set.specs()) {
    if (!spec.from_environment) continue;
    std::string name = spec.key();
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::toupper(c); });
    name = set.grammar().environment_prefix + name;
    std::string value = find_variable(environment, name).value_or("");
    // Blanks may be part of an item of a list.
    if (!std::holds_alternative<Words*>(spec.type)) value = variables::stripped(value);
    // An empty variable sets nothing, and a rejected switch may be set to 0.
    if (value.empty() || (!spec.refusal.empty() && spec.is_switch() && value == "0")) continue;
    settings.push_back({&spec, name, std::move(value)});
  }
  return settings;
}

/// Parses rewritten words by cxxopts.
cxxopts::ParseResult parsed(const OptionSet& set, const Words& words) {
  cxxopts::Options options(set.program());
  for (const auto& spec : set.specs()) {
    const auto text = cxxopts::value<std::string>();
    options.add_option("", {spec.name, "", spec.is_switch() ? text->implicit_value("true") : text});
  }
  std::vector<const char*> argv{set.program().c_str()};
  for (const auto& word : words) argv.push_back(word.c_str());
  return options.parse(static_cast<int>(argv.size()), argv.data());
}

void apply(const std::vector<Setting>& settings, void* options, ParseReport& report) {
  for (const auto& [option, place, value] : settings) {
    if (!option->refusal.empty())
      throw UsageError(fmt::format("{} is not supported: {}", place, option->refusal));
    assign_text(*option, option->field(options), value, place);
    report.given[option->name] = place;
  }
}

/// Assigns the positional arguments, of which the last one may be a list.
void apply_arguments(const OptionSet& set, const Words& words, void* options) {
  auto word = words.begin();
  for (const auto& argument : set.arguments()) {
    if (word == words.end()) {
      if (!argument.required) continue;
      throw UsageError(
          fmt::format("the {} is missing: expected {}. See --help.", argument.name, set.usage()));
    }
    const OptionField field = argument.field(options);
    if (auto* const* list = std::get_if<Words*>(&field)) {
      (*list)->assign(word, words.end());
      word = words.end();
    } else {
      assign_text(argument, field, *word++, argument.name);
    }
  }
  if (word == words.end()) return;
  throw UsageError(
      fmt::format("unexpected argument '{}'{}: {}. See --help; a value with blanks needs quotes.", *word,
                  word->starts_with("-") ? " after '--'" : "",
                  set.arguments().empty() ? set.program() + " takes flags only" : "expected " + set.usage()));
}

void apply_file(const OptionSet& set, const std::string& file, void* options) {
  const std::string place = fmt::format("--{} {}: ", set.grammar().config_option, file);
  std::ifstream stream(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (!stream) throw UsageError(place + "the file cannot be read");
  try {
    set.from_json_text(options, text);
  } catch (const UsageError& error) {
    throw UsageError(place + error.what());
  }
}

}  // namespace

ParseReport OptionSet::parse(void* options, const Words& words, const Environment& environment) const {
  ParseReport report;
  const Rewriter rewritten(*this, words);
  report.help = rewritten.help;
  if (report.help) return report;
  const auto found = parsed(*this, rewritten.words);
  std::vector<Setting> settings = environment_settings(*this, environment);
  for (std::size_t i = 0; i < found.arguments().size(); ++i) {
    const auto& each = found.arguments()[i];
    settings.push_back({find(each.key()), rewritten.places[i], each.value()});
  }
  apply(settings, options, report);
  const OptionSpec* config = grammar_.config_option.empty() ? nullptr : find(grammar_.config_option);
  const std::string file = config == nullptr ? "" : value_text(config->field(options)).value_or("");
  if (!file.empty()) {
    apply_file(*this, file, options);
    // The environment and the command line override the file.
    apply(settings, options, report);
  }
  apply_arguments(*this, found.unmatched(), options);
  for (const auto& spec : specs_) {
    if (!spec.required || !value_text(spec.field(options)).value_or("").empty()) continue;
    throw UsageError(fmt::format("--{} is required: {} See --help.", spec.name, spec.help));
  }
  return report;
}

}  // namespace lockstep
