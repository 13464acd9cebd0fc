#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/core/duration.hpp"

namespace lockstep {

/// Where the value of one option lives: a pointer to the field of the struct that is being filled. These are
/// all the types that an option can have. An option of an `std::optional` type has no value until it is given
/// one.
using OptionField =
    std::variant<bool*, int*, std::int64_t*, std::uint64_t*, double*, std::string*, std::optional<bool>*,
                 std::optional<int>*, std::optional<std::int64_t>*, std::optional<std::uint64_t>*,
                 std::optional<double>*, std::optional<std::string>*, std::vector<std::string>*, Duration*,
                 std::optional<Duration>*>;

/// A value as a check sees it: numbers of every type as `long double`, which holds each 64-bit integer
/// exactly on x86-64 and aarch64.
using OptionValue = std::variant<bool, long double, std::string>;

/// One demand on the value of an option.
struct OptionCheck {
  /// What is demanded, to be read after the type: "at least 1".
  std::string expected;
  /// Whether a value meets the demand. Called for each item of a list.
  std::function<bool(const OptionValue&)> accepts;
  /// Whether `--help` mentions it; a demand that goes without saying is only told to who breaks it.
  bool in_help = true;
};

/// Everything that is known about one option. Programs do not fill it by hand: `OptionTable::add` does, from
/// the field and from the settings below.
struct OptionSpec {
  /// The flag without its dashes, in hyphens: "learning-rate". The JSON key is the same with underscores.
  std::string name;
  /// One or two sentences for `--help` and for the documentation.
  std::string help;
  /// The word that stands for the value in `--help`; empty: one that fits the type.
  std::string metavar;
  /// The heading under which `--help` lists the option; empty: "options".
  std::string section;
  /// The one-letter alias, as in `-r`; 0: none.
  char short_name = 0;
  /// Whether the option must have a value: one that is empty after everything was read is an error.
  bool required = false;
  /// Whether the table's environment prefix gives this option a default.
  bool from_environment = true;
  /// Whether a prefix of the name stands for it, where the table allows prefixes.
  bool by_prefix = true;
  /// Whether `nan` and `inf` are numbers here.
  bool non_finite = false;
  /// When not empty, the option is known only to be refused with this text, and is left out of help, JSON and
  /// documentation.
  std::string refusal;
  /// The only values allowed; empty: all that the checks accept.
  std::vector<std::string> choices;
  std::vector<OptionCheck> checks;
  /// A null pointer of the field's type.
  OptionField type;
  /// Finds the field in a struct of the type that the option was declared for.
  std::function<OptionField(void* options)> field;

  /// The name in JSON, in environment variables (there in capitals) and as a field: "learning_rate".
  std::string key() const;
  /// Whether the option is a switch: `--name` and `--no-name`, with no value after it.
  bool is_switch() const;
};

/// One property of an option, given after its help text:
/// `.add("epochs", &Options::epochs, "Passes over the data.", at_least(1), short_name('e'))`.
using OptionSetting = std::function<void(OptionSpec&)>;

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
  return [choices = std::move(choices)](OptionSpec& spec) { spec.choices = choices; };
}
/// The option must be given, on the command line, by the environment or in the file of settings. For texts,
/// lists and `std::optional`, which are empty until then.
inline OptionSetting required() {
  return [](OptionSpec& spec) { spec.required = true; };
}
/// `nan`, `inf` and `-inf` are allowed.
inline OptionSetting or_non_finite() {
  return [](OptionSpec& spec) { spec.non_finite = true; };
}
/// A one-letter alias: `short_name('r')` allows `-r 3`, `-r3` and, for switches, `-r`.
inline OptionSetting short_name(char letter) {
  return [letter](OptionSpec& spec) { spec.short_name = letter; };
}
/// The word for the value in `--help`.
inline OptionSetting metavar(std::string word) {
  return [word = std::move(word)](OptionSpec& spec) { spec.metavar = word; };
}
/// The environment never gives this option a default, even where the table reads defaults from it.
inline OptionSetting not_from_environment() {
  return [](OptionSpec& spec) { spec.from_environment = false; };
}
/// Only the whole name stands for the option, even where the table allows prefixes: so an option that is
/// added later makes no prefix ambiguous that people use.
inline OptionSetting full_name_only() {
  return [](OptionSpec& spec) { spec.by_prefix = false; };
}

}  // namespace lockstep
