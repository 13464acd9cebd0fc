#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/core/environment.hpp"
#include "lockstep/core/option_spec.hpp"

namespace lockstep {

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

/// A table of options without its struct type: what `OptionTable` is made of. Programs use `OptionTable`.
/// Every `void*` is a pointer to a struct of the type for which the options were declared.
class OptionSet {
 public:
  OptionSet(std::string program, std::string description);

  /// Adds an option to the end. Throws std::logic_error for a name that is taken or is no flag name.
  void add(OptionSpec spec);
  /// Declares the next word that is no flag; a list takes all that are left.
  void add_argument(OptionSpec spec) { arguments_.push_back(std::move(spec)); }
  void set_grammar(OptionGrammar grammar) { grammar_ = std::move(grammar); }
  /// The heading of the options that are added from here on.
  void set_section(std::string title) { section_ = std::move(title); }

  /// Fills `options` from the words. Throws UsageError; the struct is then partly filled and of no use.
  ParseReport parse(void* options, const std::vector<std::string>& words,
                    const Environment& environment) const;
  /// Throws UsageError when a value breaks a demand.
  void check(void* options) const;
  /// Writes what the struct holds, and changes nothing in it.
  void to_json(void* options, nlohmann::json& json) const;
  /// Lays the keys over `options`. Throws UsageError; the struct is then partly filled.
  void from_json(void* options, const nlohmann::json& json) const;
  std::string to_json_text(void* options) const;
  void from_json_text(void* options, std::string_view text) const;
  /// Both read the defaults from a struct that nobody has touched.
  std::string help(void* defaults) const;
  std::string markdown_table(void* defaults) const;

  const std::string& program() const noexcept { return program_; }
  const std::vector<OptionSpec>& specs() const noexcept { return specs_; }
  const std::vector<OptionSpec>& arguments() const noexcept { return arguments_; }
  const OptionGrammar& grammar() const noexcept { return grammar_; }
  /// "program [options] NAME [FILES]".
  std::string usage() const;
  /// The option of that name in either spelling, or null.
  const OptionSpec* find(std::string_view name) const;

 private:
  std::string program_;
  std::string description_;
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
/// `--no-flag`,
/// `--flag=false`; a list is `--flag a,b` (`,,` is a comma inside an item); a flag given twice: the last one
/// holds;
/// `--` ends the flags. A number must be a number from its first to its last letter and fit its type.
///
/// `Options` must be default-constructible and copyable. All members are *Local*; a table that is no longer
/// being built may be used by several threads at once.
template <class Options>
class OptionTable {
 public:
  /// The options that a command line gave, and what else it said.
  struct Parsed : ParseReport {
    Options options;
  };

  /// `program` is the name in the usage line; `description` one or two sentences.
  OptionTable(std::string program, std::string description)
      : set_(std::move(program), std::move(description)) {}

  /// Declares an option. `name` is the flag in hyphens ("learning-rate"), `help` a sentence or two. Throws
  /// std::logic_error when the name (or its alias) is taken or is no flag name: a mistake of the program.
  template <class Field, class... Settings>
  OptionTable& add(std::string name, Field Options::*field, std::string help, const Settings&... settings) {
    set_.add(spec(std::move(name), field, std::move(help), settings...));
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
      if (spec.field) {
        spec.field = [inner = spec.field](void* options) {
          return inner(static_cast<Part*>(static_cast<Options*>(options)));
        };
      }
      set_.add(std::move(spec));
    }
    return *this;
  }
  /// The options in the order of their declaration.
  const std::vector<OptionSpec>& specs() const noexcept { return set_.specs(); }

  /// Declares a flag that is known only to be refused: `text` says what to do instead.
  template <class... Settings>
  OptionTable& refuse(std::string name, bool takes_value, std::string text, const Settings&... settings) {
    OptionSpec refused;
    refused.name = std::move(name);
    if (takes_value) refused.type = static_cast<std::string*>(nullptr);
    refused.refusal = std::move(text);
    (settings(refused), ...);
    set_.add(std::move(refused));
    return *this;
  }

  /// Declares the next word that is no flag, as in `.argument("FOLDER", &Options::folder, "Where it lies.")`.
  /// It must be given.
  template <class Field, class... Settings>
  OptionTable& argument(std::string name, Field Options::*field, std::string help,
                        const Settings&... settings) {
    set_.add_argument(spec(std::move(name), field, std::move(help), required(), settings...));
    return *this;
  }

  /// The words that are no flags and no `argument` go into `field`; without this they are refused. `name` is
  /// shown in the usage line.
  OptionTable& rest(std::string name, std::vector<std::string> Options::*field, std::string help,
                    bool required = false) {
    OptionSpec words = spec(std::move(name), field, std::move(help));
    words.required = required;
    set_.add_argument(std::move(words));
    return *this;
  }

  /// Options added from here on are listed under `title` in `--help`.
  OptionTable& section(std::string title) {
    set_.set_section(std::move(title));
    return *this;
  }

  /// How command lines are read; see OptionGrammar.
  OptionTable& grammar(OptionGrammar grammar) {
    set_.set_grammar(std::move(grammar));
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
    static_cast<ParseReport&>(parsed) = set_.parse(&parsed.options, arguments, environment);
    return parsed;
  }

  /// Holds a struct that was filled by code against the same demands. Throws UsageError.
  void check(Options options) const { set_.check(&options); }

  /// Writes an object with one key per option ("learning_rate"); absent optionals are null, and numbers that
  /// are not finite are the strings "nan", "inf" and "-inf". The rest is not part of it.
  void to_json(nlohmann::json& json, Options options) const { set_.to_json(&options, json); }
  /// `base` with the keys of `json` put over it. Throws UsageError for an unknown key, a wrong type, a value
  /// out of bounds, or when `json` is no object; `base` is a copy, so nothing is half done.
  Options from_json(const nlohmann::json& json, Options base = {}) const {
    set_.from_json(&base, json);
    return base;
  }
  /// The same as text: two blanks of indentation, a line per option, keys in alphabetical order.
  std::string to_json_text(Options options) const { return set_.to_json_text(&options); }
  Options from_json_text(std::string_view text, Options base = {}) const {
    set_.from_json_text(&base, text);
    return base;
  }

  /// The text of `--help`, with the defaults of a default-constructed `Options`.
  std::string help() const {
    Options defaults;
    return set_.help(&defaults);
  }
  /// The same as a Markdown table for the documentation.
  std::string markdown_table() const {
    Options defaults;
    return set_.markdown_table(&defaults);
  }

 private:
  template <class Field, class... Settings>
  static OptionSpec spec(std::string name, Field Options::*field, std::string help,
                         const Settings&... settings) {
    OptionSpec result;
    result.name = std::move(name);
    result.help = std::move(help);
    result.type = static_cast<Field*>(nullptr);
    result.field = [field](void* options) { return OptionField(&(static_cast<Options*>(options)->*field)); };
    (settings(result), ...);
    return result;
  }

  OptionSet set_;
};

}  // namespace lockstep
