#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace lockstep::launch {

using Words = std::vector<std::string>;

/// One command of `lockstep`.
struct Command {
  const char* name;
  /// A sentence for `lockstep --help`.
  const char* summary;
  /// Gets the words after the command's name, prints results on `out` and what else there is to say on `err`,
  /// and returns the exit status. Throws UsageError for a wrong command line and other errors of lockstep.
  int (*run)(const Words& words, std::ostream& out, std::ostream& err);
};

/// All commands, in the order in which `lockstep --help` lists them.
const std::vector<Command>& commands();

/// The commands, a file each. All are *Local*.
int run_command(const Words& words, std::ostream& out, std::ostream& err);
int bench_command(const Words& words, std::ostream& out, std::ostream& err);
int cache_command(const Words& words, std::ostream& out, std::ostream& err);
int check_command(const Words& words, std::ostream& out, std::ostream& err);
int checkpoint_command(const Words& words, std::ostream& out, std::ostream& err);
int env_command(const Words& words, std::ostream& out, std::ostream& err);
int new_command(const Words& words, std::ostream& out, std::ostream& err);
int prepare_command(const Words& words, std::ostream& out, std::ostream& err);
int slurm_command(const Words& words, std::ostream& out, std::ostream& err);
int stacks_command(const Words& words, std::ostream& out, std::ostream& err);
int stage_command(const Words& words, std::ostream& out, std::ostream& err);
int test_command(const Words& words, std::ostream& out, std::ostream& err);
int trace_command(const Words& words, std::ostream& out, std::ostream& err);

}  // namespace lockstep::launch
