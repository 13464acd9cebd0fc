#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "lockstep/core/options.hpp"

namespace lockstep::launch {

using Words = std::vector<std::string>;

/// One command of `lockstep`, or one action of such a command.
struct Command {
  const char* name;
  /// A sentence for `--help`.
  const char* summary;
  /// Gets the words after the command's name, prints results on `out` and what else there is to say on `err`,
  /// and returns the exit status. Throws UsageError for a wrong command line and other errors of lockstep.
  int (*run)(const Words& words, std::ostream& out, std::ostream& err);
};

/// Runs the command that the first word names. With `--help`, lists them. Throws UsageError where the first
/// word is none of them. `program` is what stands before the words: "lockstep cache".
int run_one_of(const std::vector<Command>& commands, const std::string& program, const Words& words,
               std::ostream& out, std::ostream& err);

/// What the words say; nothing when they ask for help, which is then on `out`. Throws UsageError.
template <class Options>
std::optional<typename OptionTable<Options>::Parsed> parse_or_help(const OptionTable<Options>& table,
                                                                   const Words& words, std::ostream& out) {
  auto parsed = table.parse(words, process_environment());
  if (!parsed.help) return parsed;
  out << table.help();
  return std::nullopt;
}

/// The commands, a file each. All are *Local*.
int bench_command(const Words& words, std::ostream& out, std::ostream& err);
int cache_command(const Words& words, std::ostream& out, std::ostream& err);
int check_command(const Words& words, std::ostream& out, std::ostream& err);
int checkpoint_command(const Words& words, std::ostream& out, std::ostream& err);
int env_command(const Words& words, std::ostream& out, std::ostream& err);
int new_command(const Words& words, std::ostream& out, std::ostream& err);
int prepare_command(const Words& words, std::ostream& out, std::ostream& err);
int run_command(const Words& words, std::ostream& out, std::ostream& err);
int slurm_command(const Words& words, std::ostream& out, std::ostream& err);
int stacks_command(const Words& words, std::ostream& out, std::ostream& err);
int stage_command(const Words& words, std::ostream& out, std::ostream& err);
int test_command(const Words& words, std::ostream& out, std::ostream& err);
int tokenizer_command(const Words& words, std::ostream& out, std::ostream& err);
int trace_command(const Words& words, std::ostream& out, std::ostream& err);

}  // namespace lockstep::launch
