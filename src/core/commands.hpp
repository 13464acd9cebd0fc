#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "lockstep/core/options.hpp"

namespace lockstep {

/// A command of a program with several commands, or a subcommand of such a command.
struct Command {
  const char* name;
  /// A sentence for `--help`.
  const char* summary;
  /// Receives the words after the command's name, prints results to `out` and messages to `err`, and returns
  /// the exit code. Throws UsageError for a wrong command line, and other errors of lockstep.
  int (*run)(const std::vector<std::string>& words, std::ostream& out, std::ostream& err);
};

/// Runs the command named by the first word. With `--help`, lists the commands. Throws UsageError if the
/// first word is not a command. `program` is the text before the words: "lockstep cache".
int run_one_of(const std::vector<Command>& commands, const std::string& program,
               const std::vector<std::string>& words, std::ostream& out, std::ostream& err);

/// Parses the words; nothing if they ask for help, which is then printed to `out`. Throws UsageError.
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
