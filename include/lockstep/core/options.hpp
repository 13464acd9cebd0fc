#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/core/duration.hpp"
#include "lockstep/core/environment.hpp"

namespace lockstep {

/// A field of an enum type, written as a word on the command line and in JSON. A function next to the enum
/// lists the words in the order of its values, which start at 0:
///
///     enum class Color { red, green };
///     inline std::vector<std::string> option_words(Color) { return {"red", "green"}; }
struct OptionEnum {
  void* field = nullptr;
  std::string (*read)(const void* field) = nullptr;
  /// Requires one of the words.
  void (*write)(void* field, const std::string& word) = nullptr;
};

/// The word of an enum's value; the number if it has no word.
template <class Enum>
std::string option_word(Enum value) {
  const std::vector<std::string> words = option_words(value);
  const auto index = static_cast<std::size_t>(value);
  return index < words.size() ? words[index] : std::to_string(index);
}

/// A pointer to the field of the options struct that holds an option's value. These are all supported types.
/// An option of an `std::optional` type has no value until it is set.
using OptionField =
    std::variant<bool*, int*, std::int64_t*, std::uint64_t*, double*, std::string*, std::optional<bool>*,
                 std::optional<int>*, std::optional<std::int64_t>*, std::optional<std::uint64_t>*,
                 std::optional<double>*, std::optional<std::string>*, std::vector<std::string>*, Duration*,
                 std::optional<Duration>*, OptionEnum>;

/// A constraint on the value of an option.
struct OptionCheck {
  /// The constraint as text, printed after the type: "at least 1".
  std::string expected;
  /// Whether a value meets the constraint. Called per item of a list; a duration is passed as its number.
  std::function<bool(const nlohmann::json&)> accepts;
  /// Whether `--help` shows it; false for obvious constraints, which only error messages mention.
  bool in_help = true;
};

/// The description of one option. Programs do not fill it themselves: `OptionTable::add` does, from the field
/// and from the settings below, which have the names of the members.
struct OptionSpec {
  /// The flag without leading dashes, with hyphens: "learning-rate". The JSON key has underscores instead.
  std::string name;
  /// Help text for `--help` and the documentation, one or two sentences.
  std::string help;
  /// Empty: derived from the type.
  std::string metavar;
  /// The heading under which `--help` lists the option; empty: "options".
  std::string section;
  /// 0: none.
  char short_name = 0;
  bool required = false;
  bool from_environment = true;
  bool by_prefix = true;
  bool non_finite = false;
  bool accumulates = false;
  /// If not empty, the option is rejected with this text, and does not appear in help, JSON and
  /// documentation.
  std::string refusal;
  /// The allowed values; empty: all that pass the checks.
  std::vector<std::string> choices;
  std::vector<OptionCheck> checks;
  /// A null pointer of the field's type.
  OptionField type;
  /// Returns the field of a struct of the type for which the option was declared. Empty for `--help` and for
  /// rejected options.
  std::function<OptionField(void* options)> field;

  /// The name in JSON and in the struct: "learning_rate". Environment variables have it in upper case.
  std::string key() const;
  /// Whether the option is a switch: `--name` and `--no-name`, without a value.
  bool is_switch() const;
};

/// A property of an option, passed after its help text:
using OptionSetting = std::function<void(OptionSpec&)>;

/// A setting that assigns `value` to a member of the spec.
template <class Value>
OptionSetting option_setting(Value OptionSpec::*member, Value value) {
  return [member, value = std::move(value)](OptionSpec& spec) { spec.*member = value; };
}

/// Bounds of a number. A bound beyond 2^53 is rounded to a double; values are compared exactly.
OptionSetting at_least(double bound);
OptionSetting at_most(double bound);
OptionSetting more_than(double bound);
OptionSetting less_than(double bound);
/// From `low` to `high`, inclusive.
OptionSetting between(double low, double high);
/// A non-empty string (or list item).
OptionSetting not_empty();
/// Any constraint on a string; `expected` describes it, as in "a color".
OptionSetting matching(std::string expected, std::function<bool(const std::string&)> accepts);
/// One of these strings, compared exactly.
inline OptionSetting one_of(std::vector<std::string> choices) {
  return option_setting(&OptionSpec::choices, std::move(choices));
}
/// The option must be set on the command line, by the environment or in the config file. For strings, lists
/// and `std::optional`, which are empty by default.
inline OptionSetting required() { return option_setting(&OptionSpec::required, true); }
/// Allows `nan`, `inf` and `-inf`.
inline OptionSetting or_non_finite() { return option_setting(&OptionSpec::non_finite, true); }
/// A one-letter alias: `short_name('r')` allows `-r 3`, `-r3` and, for switches, `-r`.
inline OptionSetting short_name(char letter) { return option_setting(&OptionSpec::short_name, letter); }
/// The placeholder of the value in `--help`.
inline OptionSetting metavar(std::string word) {
  return option_setting(&OptionSpec::metavar, std::move(word));
}
/// Repeated flags of a list form one list: `--sbatch a --sbatch b,c` is `--sbatch a,b,c`.
inline OptionSetting accumulate() { return option_setting(&OptionSpec::accumulates, true); }
/// The environment does not set this option, even if the table has an environment prefix.
inline OptionSetting not_from_environment() { return option_setting(&OptionSpec::from_environment, false); }
/// The option cannot be abbreviated, even if the table allows prefixes: an option that is added later then
/// does not make prefixes ambiguous that are in use.
inline OptionSetting full_name_only() { return option_setting(&OptionSpec::by_prefix, false); }

/// How a command line is parsed. The default suits most programs; the launcher uses torchrun's grammar.
struct OptionGrammar {
  /// Option parsing stops at the first positional argument: it and all following words are the rest,
  /// unchanged.
  bool stop_at_first_positional = false;
  /// A flag may be abbreviated to a unique prefix. Off by default: adding a flag would break scripts that
  /// abbreviate another.
  bool unique_prefixes = false;
  /// If not empty, the variable `<prefix><NAME>` (as in PET_NNODES) sets the option; the command line
  /// overrides it.
  std::string environment_prefix;
  /// If not empty, the name of a string option that names a JSON file: the file overrides the defaults; the
  /// environment and the command line override the file.
  std::string config_option = {};
};

/// What was parsed, other than the options themselves.
struct ParseReport {
  /// `--help` or `-h` was found: the words after it were not parsed, and required options not checked.
  bool help = false;
  /// Names ("learning-rate") of the options that were set, each with the source of its value: "--epochs" or
  /// "PET_EPOCHS".
  std::map<std::string, std::string, std::less<>> given;

  bool was_given(std::string_view name) const { return given.find(name) != given.end(); }
};

/// A table of options without its struct type: the base of `OptionTable`, which documents the functions.
/// Every `void*` points to a struct of the type for which the options were declared; a function that throws
/// leaves it partly filled.
class OptionSet {
 public:
  /// `defaults` points to a struct that is never modified.
  OptionSet(std::string program, std::string description, std::shared_ptr<void> defaults);

  void add(OptionSpec spec);
  ParseReport parse(void* options, const std::vector<std::string>& words,
                    const Environment& environment) const;
  void check(void* options) const;
  void to_json(void* options, nlohmann::json& json) const;
  std::string to_json_text(void* options) const;
  void from_json(void* options, const nlohmann::json& json) const;
  void from_json_text(void* options, std::string_view text) const;

  /// The text of `--help`, with the defaults of a default-constructed struct.
  std::string help() const;
  /// The same as a Markdown table for the documentation.
  std::string markdown_table() const;
  /// "program [options] NAME [FILES]".
  std::string usage() const;
  /// The option of that name, with hyphens or underscores; null if there is none.
  const OptionSpec* find(std::string_view name) const;
  /// `--help`, then the options in the order of declaration.
  const std::vector<OptionSpec>& specs() const noexcept { return specs_; }
  /// The positional arguments in order; a list takes all that remain.
  const std::vector<OptionSpec>& arguments() const noexcept { return arguments_; }
  const std::string& program() const noexcept { return program_; }
  const OptionGrammar& grammar() const noexcept { return grammar_; }

 protected:
  std::string program_;
  std::string description_;
  std::shared_ptr<void> defaults_;
  /// The section of the options that are added from here on.
  std::string section_;
  std::vector<OptionSpec> specs_;
  std::vector<OptionSpec> arguments_;
  OptionGrammar grammar_;
};

/// The options of a program: one declaration per field of a plain struct defines its command-line flag, its
/// JSON key, its line in `--help` and its row in the documentation. The struct provides the defaults.
///
/// ```cpp
/// struct Options {
///   std::int64_t epochs = 10;
///   bool resume = false;
/// };
/// const OptionTable<Options>& option_table() {
///   static const auto table = OptionTable<Options>("my_trainer", "Trains a network.")
///                                 .add("epochs", &Options::epochs, "Passes over the data.", at_least(1))
///                                 .add("resume", &Options::resume, "Go on from the last checkpoint.");
///   return table;
/// }
/// const auto parsed = option_table().parse(argc, argv);
/// if (parsed.help) { std::cout << option_table().help(); return 0; }
/// ```
///
/// Syntax of the command line: `--flag value` and `--flag=value`; hyphens or underscores; switches are
/// `--flag`, `--no-flag`, `--flag=false`, and `--flag false` in a table without arguments; lists are `--flag
/// a,b` (`,,` is a comma inside an item); the last of repeated flags wins (but see accumulate()); `--` ends
/// the flags. The whole text of a number must be a number that fits its type.
///
/// `Options` must be default-constructible and copyable. All members are *Local*; a complete table may be
/// used by several threads at once.
template <class Options>
class OptionTable : private OptionSet {
 public:
  /// The parsed options and the report.
  struct Parsed : ParseReport {
    Options options;
  };

  /// `program` is the name in the usage line; `description` is one or two sentences.
  OptionTable(std::string program, std::string description)
      : OptionSet(std::move(program), std::move(description), std::make_shared<Options>()) {}

  using OptionSet::help;
  using OptionSet::markdown_table;
  using OptionSet::specs;

  /// Declares an option. `name` is the flag with hyphens ("learning-rate"), `help` one or two sentences.
  /// Throws std::logic_error if the name (or its alias) is taken or not a valid flag name: a bug in the
  /// program.
  template <class Field, class... Settings>
  OptionTable& add(std::string name, Field Options::*field, std::string help, const Settings&... settings) {
    OptionSet::add(spec(std::move(name), field, std::move(help), settings...));
    return *this;
  }

  /// Adds all options of the table of `Part`, a base of `Options`. A program can thus declare its own options
  /// next to a library's:
  ///
  ///     struct Options : TrainingArguments { std::string data; };
  ///     table.include(training_argument_table()).section("data").add("data", &Options::data, "Folder.");
  template <class Part>
  OptionTable& include(const OptionTable<Part>& part) {
    for (OptionSpec spec : part.specs()) {
      if (spec.name == "help") continue;
      if (spec.field) {
        spec.field = [inner = spec.field](void* options) {
          return inner(static_cast<Part*>(static_cast<Options*>(options)));
        };
      }
      OptionSet::add(std::move(spec));
    }
    return *this;
  }

  /// Declares a flag that is always rejected: `text` says what to do instead.
  template <class... Settings>
  OptionTable& refuse(std::string name, bool takes_value, std::string text, const Settings&... settings) {
    OptionSpec refused;
    refused.name = std::move(name);
    if (takes_value) refused.type = static_cast<std::string*>(nullptr);
    refused.refusal = std::move(text);
    (settings(refused), ...);
    OptionSet::add(std::move(refused));
    return *this;
  }

  /// Declares the next positional argument, as in `.argument("FOLDER", &Options::folder, "Where it lies.")`.
  /// It is required.
  template <class Field, class... Settings>
  OptionTable& argument(std::string name, Field Options::*field, std::string help,
                        const Settings&... settings) {
    arguments_.push_back(spec(std::move(name), field, std::move(help), required(), settings...));
    return *this;
  }

  /// The remaining positional arguments are stored in `field`; without this they are rejected. The usage line
  /// shows `name`.
  OptionTable& rest(std::string name, std::vector<std::string> Options::*field, std::string help,
                    bool required = false) {
    return argument(std::move(name), field, std::move(help), option_setting(&OptionSpec::required, required));
  }

  /// Options added from here on are listed under `title` in `--help`.
  OptionTable& section(std::string title) {
    section_ = std::move(title);
    return *this;
  }

  /// How command lines are parsed; see OptionGrammar.
  OptionTable& grammar(OptionGrammar grammar) {
    grammar_ = std::move(grammar);
    return *this;
  }

  /// Parses a command line; `argv[0]` is skipped. The environment is read only if the grammar has a prefix.
  /// Throws UsageError that names the flag, its value, what was expected and, for an unknown flag, the
  /// nearest one.
  Parsed parse(int argc, const char* const* argv) const {
    return parse(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc), process_environment());
  }
  /// The same for given words and a given environment.
  Parsed parse(const std::vector<std::string>& arguments, const Environment& environment = {}) const {
    Parsed parsed;
    static_cast<ParseReport&>(parsed) = OptionSet::parse(&parsed.options, arguments, environment);
    return parsed;
  }

  /// Checks the constraints on a struct that code has filled. Throws UsageError.
  void check(Options options) const { OptionSet::check(&options); }

  /// Writes an object with one key per option ("learning_rate"). Optionals without a value are null;
  /// non-finite numbers are the strings "nan", "inf" and "-inf". Positional arguments are not included.
  void to_json(nlohmann::json& json, Options options) const { OptionSet::to_json(&options, json); }
  /// Returns `base` updated with the keys of `json`. Throws UsageError for an unknown key, a wrong type, a
  /// value out of bounds, or if `json` is not an object. `base` is a copy, so nothing is partly changed.
  Options from_json(const nlohmann::json& json, Options base = {}) const {
    OptionSet::from_json(&base, json);
    return base;
  }
  /// The same as text: indented by two blanks, one line per option, keys in alphabetical order.
  std::string to_json_text(Options options) const { return OptionSet::to_json_text(&options); }
  Options from_json_text(std::string_view text, Options base = {}) const {
    OptionSet::from_json_text(&base, text);
    return base;
  }

 private:
  template <class Field>
  static OptionField field_of(Field* field) {
    if constexpr (std::is_enum_v<Field>) {
      return OptionEnum{field, [](const void* from) { return option_word(*static_cast<const Field*>(from)); },
                        [](void* to, const std::string& word) {
                          const std::vector<std::string> words = option_words(Field{});
                          const auto found = std::find(words.begin(), words.end(), word);
                          *static_cast<Field*>(to) = static_cast<Field>(found - words.begin());
                        }};
    } else {
      return field;
    }
  }

  template <class Field, class... Settings>
  static OptionSpec spec(std::string name, Field Options::*field, std::string help,
                         const Settings&... settings) {
    OptionSpec result;
    result.name = std::move(name);
    result.help = std::move(help);
    result.type = field_of(static_cast<Field*>(nullptr));
    result.field = [field](void* options) { return field_of(&(static_cast<Options*>(options)->*field)); };
    if constexpr (std::is_enum_v<Field>) result.choices = option_words(Field{});
    (settings(result), ...);
    return result;
  }
};

}  // namespace lockstep
