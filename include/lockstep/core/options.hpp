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

/// The field of an enum: on the command line and in JSON it is a word. Which words there are, the enum says
/// by a function beside it, in the order of its values, which begin at 0:
///
///     enum class Color { red, green };
///     inline std::vector<std::string> option_words(Color) { return {"red", "green"}; }
struct OptionEnum {
  void* field = nullptr;
  std::string (*read)(const void* field) = nullptr;
  /// Only for one of the words.
  void (*write)(void* field, const std::string& word) = nullptr;
};

/// The word of an enum's value; its number for a value that it does not have.
template <class Enum>
std::string option_word(Enum value) {
  const std::vector<std::string> words = option_words(value);
  const auto index = static_cast<std::size_t>(value);
  return index < words.size() ? words[index] : std::to_string(index);
}

/// Where the value of one option lives: a pointer to the field of the struct that is being filled. These are
/// all the types that an option can have. An option of an `std::optional` type has no value until it is given
/// one.
using OptionField =
    std::variant<bool*, int*, std::int64_t*, std::uint64_t*, double*, std::string*, std::optional<bool>*,
                 std::optional<int>*, std::optional<std::int64_t>*, std::optional<std::uint64_t>*,
                 std::optional<double>*, std::optional<std::string>*, std::vector<std::string>*, Duration*,
                 std::optional<Duration>*, OptionEnum>;

/// One demand on the value of an option.
struct OptionCheck {
  /// What is demanded, to be read after the type: "at least 1".
  std::string expected;
  /// Whether a value meets the demand. Called for each item of a list; a duration comes as its number.
  std::function<bool(const nlohmann::json&)> accepts;
  /// Whether `--help` mentions it; a demand that goes without saying is only told to who breaks it.
  bool in_help = true;
};

/// Everything that is known about one option. Programs do not fill it by hand: `OptionTable::add` does, from
/// the field and from the settings below, which say what the members of their names mean.
struct OptionSpec {
  /// The flag without its dashes, in hyphens: "learning-rate". The JSON key is the same with underscores.
  std::string name;
  /// One or two sentences for `--help` and for the documentation.
  std::string help;
  /// Empty: one that fits the type.
  std::string metavar;
  /// The heading under which `--help` lists the option; empty: "options".
  std::string section;
  /// 0: none.
  char short_name = 0;
  bool required = false;
  bool from_environment = true;
  bool by_prefix = true;
  bool non_finite = false;
  /// When not empty, the option is known only to be refused with this text, and is left out of help, JSON and
  /// documentation.
  std::string refusal;
  /// The only values allowed; empty: all that the checks accept.
  std::vector<std::string> choices;
  std::vector<OptionCheck> checks;
  /// A null pointer of the field's type.
  OptionField type;
  /// Finds the field in a struct of the type that the option was declared for. Empty for `--help` and for
  /// what is refused.
  std::function<OptionField(void* options)> field;

  /// The name in JSON, in environment variables (there in capitals) and as a field: "learning_rate".
  std::string key() const;
  /// Whether the option is a switch: `--name` and `--no-name`, with no value after it.
  bool is_switch() const;
};

/// One property of an option, given after its help text:
/// `.add("epochs", &Options::epochs, "Passes over the data.", at_least(1), short_name('e'))`.
using OptionSetting = std::function<void(OptionSpec&)>;

/// The setting that gives a member of the spec this value.
template <class Value>
OptionSetting option_setting(Value OptionSpec::*member, Value value) {
  return [member, value = std::move(value)](OptionSpec& spec) { spec.*member = value; };
}

/// Bounds of a number. A bound beyond 2^53 is rounded to a double; values are compared exactly.
OptionSetting at_least(double bound);
OptionSetting at_most(double bound);
OptionSetting more_than(double bound);
OptionSetting less_than(double bound);
/// From `low` to `high`, both included.
OptionSetting between(double low, double high);
/// A text (or an item of a list) that is not empty.
OptionSetting not_empty();
/// Any demand on a text; `expected` says it, as in "a colour".
OptionSetting matching(std::string expected, std::function<bool(const std::string&)> accepts);
/// Only these texts, spelt exactly so.
inline OptionSetting one_of(std::vector<std::string> choices) {
  return option_setting(&OptionSpec::choices, std::move(choices));
}
/// The option must be given, on the command line, by the environment or in the file of settings. For texts,
/// lists and `std::optional`, which are empty until then.
inline OptionSetting required() { return option_setting(&OptionSpec::required, true); }
/// `nan`, `inf` and `-inf` are allowed.
inline OptionSetting or_non_finite() { return option_setting(&OptionSpec::non_finite, true); }
/// A one-letter alias: `short_name('r')` allows `-r 3`, `-r3` and, for switches, `-r`.
inline OptionSetting short_name(char letter) { return option_setting(&OptionSpec::short_name, letter); }
/// The word for the value in `--help`.
inline OptionSetting metavar(std::string word) {
  return option_setting(&OptionSpec::metavar, std::move(word));
}
/// The environment never gives this option a default, even where the table reads defaults from it.
inline OptionSetting not_from_environment() { return option_setting(&OptionSpec::from_environment, false); }
/// Only the whole name stands for the option, even where the table allows prefixes: so an option that is
/// added later makes no prefix ambiguous that people use.
inline OptionSetting full_name_only() { return option_setting(&OptionSpec::by_prefix, false); }

/// How a command line is read. The default is what most programs want; the launcher reads torchrun's grammar.
struct OptionGrammar {
  /// The first word that is no flag ends the options: it and all that follows are the rest, untouched.
  bool stop_at_first_positional = false;
  /// A flag may be shortened as long as one flag only begins so. Off by default: a script that shortens a
  /// flag breaks when another flag is added.
  bool unique_prefixes = false;
  /// When not empty, the variable `<prefix><NAME>` (as in PET_NNODES) is the default of the option, and the
  /// command line beats it.
  std::string environment_prefix;
  /// When not empty, the option of this name (a text) names a JSON file: its keys are laid over the defaults,
  /// and the command line over them.
  std::string config_option = {};
};

/// What a command line said, beside the options themselves.
struct ParseReport {
  /// `--help` or `-h` was met: nothing after it was read and nothing was demanded.
  bool help = false;
  /// Names ("learning-rate") of the options that were given, each with the place that gave its value:
  /// "--epochs" or "PET_EPOCHS".
  std::map<std::string, std::string, std::less<>> given;

  bool was_given(std::string_view name) const { return given.find(name) != given.end(); }
};

/// A table of options without its struct type: what `OptionTable` is made of, and where its functions are
/// explained. Every `void*` is a pointer to a struct of the type for which the options were declared; what
/// throws leaves it partly filled.
class OptionSet {
 public:
  /// `defaults` is a struct that nobody changes.
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
  /// The option of that name in either spelling, or null.
  const OptionSpec* find(std::string_view name) const;
  /// `--help`, and the options in the order of their declaration.
  const std::vector<OptionSpec>& specs() const noexcept { return specs_; }
  /// The words that are no flags, in their order; a list takes all that are left.
  const std::vector<OptionSpec>& arguments() const noexcept { return arguments_; }
  const std::string& program() const noexcept { return program_; }
  const OptionGrammar& grammar() const noexcept { return grammar_; }

 protected:
  std::string program_;
  std::string description_;
  std::shared_ptr<void> defaults_;
  /// The heading of the options that are added from here on.
  std::string section_;
  std::vector<OptionSpec> specs_;
  std::vector<OptionSpec> arguments_;
  OptionGrammar grammar_;
};

/// The options of a program: one declaration for each field of a plain struct drives its command-line flag,
/// its JSON key, its line in `--help` and its row in the documentation. Defaults are those of the struct.
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
/// The command line: `--flag value` and `--flag=value`; hyphens or underscores; a switch is `--flag`,
/// `--no-flag`, `--flag=false`; a list is `--flag a,b` (`,,` is a comma inside an item); a flag given twice:
/// the last one holds; `--` ends the flags. A number must be a number from its first to its last letter and
/// fit its type.
///
/// `Options` must be default-constructible and copyable. All members are *Local*; a table that is no longer
/// being built may be used by several threads at once.
template <class Options>
class OptionTable : private OptionSet {
 public:
  /// The options that a command line gave, and what else it said.
  struct Parsed : ParseReport {
    Options options;
  };

  /// `program` is the name in the usage line; `description` one or two sentences.
  OptionTable(std::string program, std::string description)
      : OptionSet(std::move(program), std::move(description), std::make_shared<Options>()) {}

  using OptionSet::help;
  using OptionSet::markdown_table;
  using OptionSet::specs;

  /// Declares an option. `name` is the flag in hyphens ("learning-rate"), `help` a sentence or two. Throws
  /// std::logic_error when the name (or its alias) is taken or is no flag name: a mistake of the program.
  template <class Field, class... Settings>
  OptionTable& add(std::string name, Field Options::*field, std::string help, const Settings&... settings) {
    OptionSet::add(spec(std::move(name), field, std::move(help), settings...));
    return *this;
  }

  /// Adds all options of a table for a part of these: `Part` is a base of `Options`. So a program declares
  /// what is its own beside what a library knows:
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

  /// Declares a flag that is known only to be refused: `text` says what to do instead.
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

  /// Declares the next word that is no flag, as in `.argument("FOLDER", &Options::folder, "Where it lies.")`.
  /// It must be given.
  template <class Field, class... Settings>
  OptionTable& argument(std::string name, Field Options::*field, std::string help,
                        const Settings&... settings) {
    arguments_.push_back(spec(std::move(name), field, std::move(help), required(), settings...));
    return *this;
  }

  /// The words that are no flags and no `argument` go into `field`; without this they are refused. `name` is
  /// shown in the usage line.
  OptionTable& rest(std::string name, std::vector<std::string> Options::*field, std::string help,
                    bool required = false) {
    return argument(std::move(name), field, std::move(help), option_setting(&OptionSpec::required, required));
  }

  /// Options added from here on are listed under `title` in `--help`.
  OptionTable& section(std::string title) {
    section_ = std::move(title);
    return *this;
  }

  /// How command lines are read; see OptionGrammar.
  OptionTable& grammar(OptionGrammar grammar) {
    grammar_ = std::move(grammar);
    return *this;
  }

  /// Reads a command line; `argv[0]` is skipped. The environment is read only where the grammar names a
  /// prefix. Throws UsageError that names the flag, its value, what was expected and the nearest flag for an
  /// unknown one.
  Parsed parse(int argc, const char* const* argv) const {
    return parse(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc), process_environment());
  }
  /// The same for words and an environment of the caller's.
  Parsed parse(const std::vector<std::string>& arguments, const Environment& environment = {}) const {
    Parsed parsed;
    static_cast<ParseReport&>(parsed) = OptionSet::parse(&parsed.options, arguments, environment);
    return parsed;
  }

  /// Holds a struct that was filled by code against the same demands. Throws UsageError.
  void check(Options options) const { OptionSet::check(&options); }

  /// Writes an object with one key per option ("learning_rate"); absent optionals are null, and numbers that
  /// are not finite are the strings "nan", "inf" and "-inf". The rest is not part of it.
  void to_json(nlohmann::json& json, Options options) const { OptionSet::to_json(&options, json); }
  /// `base` with the keys of `json` put over it. Throws UsageError for an unknown key, a wrong type, a value
  /// out of bounds, or when `json` is no object; `base` is a copy, so nothing is half done.
  Options from_json(const nlohmann::json& json, Options base = {}) const {
    OptionSet::from_json(&base, json);
    return base;
  }
  /// The same as text: two blanks of indentation, a line per option, keys in alphabetical order.
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
