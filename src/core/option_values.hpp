#pragma once

#include <map>
#include <optional>
#include <string>

#include "lockstep/core/options.hpp"

namespace lockstep {

/// Parses `text`, checks it, and stores it in the field. `source` says where the text is from ("--epochs",
/// "PET_NNODES"). Throws UsageError and leaves the field unchanged.
void assign_text(const OptionSpec& spec, OptionField field, const std::string& text,
                 const std::string& source);

/// The same for a JSON value, whose type must be the field's own: "3" is not a number, and 1 is not true.
void assign_json(const OptionSpec& spec, OptionField field, const nlohmann::json& value);

/// Null for an optional without a value; non-finite numbers are strings, because JSON has no such numbers.
nlohmann::json json_of(OptionField field);

/// The value in the syntax of a flag; nothing for an optional without a value.
std::optional<std::string> value_text(OptionField field);

/// Finds options of one field, as --epochs beside --num-train-epochs, that are given different values: which
/// of them was meant cannot be known.
class FieldValues {
 public:
  /// The field has just been given its value by `source` ("--epochs"). A later one of the same option
  /// replaces it.
  void note(const OptionSpec& spec, OptionField field, const std::string& source);
  /// Throws UsageError that names both options and their values.
  void check() const;

 private:
  struct Given {
    std::string source;
    std::string value;
  };
  std::map<const void*, std::map<std::string, Given>> fields_;
};

/// Throws UsageError if the field's current value is not allowed.
void check_value(const OptionSpec& spec, OptionField field);

/// The type and the constraints: "a 32-bit integer, at least 1".
std::string expected_text(const OptionSpec& spec);

/// The constraints: "at least 1"; may be empty. `in_help`: only those that `--help` shows.
std::string demands_text(const OptionSpec& spec, bool in_help = false);

/// The placeholder of the value in `--help`: the option's own, otherwise one for its choices or type.
std::string metavar_of(const OptionSpec& spec);

/// The shortest text that parses to the same number; integers below 1e15 without an exponent.
std::string number_text(double number);

}  // namespace lockstep
