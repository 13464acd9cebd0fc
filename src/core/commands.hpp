#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "lockstep/core/options.hpp"

namespace lockstep {

/// A command of a program that has several, or an action of such a command.
struct Command {
  const char* name;
  /// A sentence for `--help`.
  const char* summary;
  /// Gets the words after the command's name, prints results on `out` and what else there is to say on `err`,
  /// and returns the exit status. Throws UsageError for a wrong command line and other errors of lockstep.
  int (*run)(const std::vector<std::string>& words, std::ostream& out, std::ostream& err);
};

/// Runs the command that the first word names. With `--help`, lists them. Throws UsageError where the first
/// word is none of them. `program` is what stands before the words: "lockstep cache".
int run_one_of(const std::vector<Command>& commands, const std::string& program,
               const std::vector<std::string>& words, std::ostream& out, std::ostream& err);

/// What the words say; nothing when they ask for help, which is then on `out`. Throws UsageError.
template <class Options>
std::optional<typename OptionTable<Options>::Parsed> parse_or_help(const OptionTable<Options>& table,
                                                                   const std::vector<std::string>& words,
                                                                   std::ostream& out) {
  auto parsed = table.parse(words, process_environment());
  if (!parsed.help) return parsed;
  out << table.help();
  return std::nullopt;
}

}  // namespace lockstep
