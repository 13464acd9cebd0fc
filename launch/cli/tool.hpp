#pragma once

#include "cli/commands.hpp"

namespace lockstep::launch {

/// The words of a command that starts a program of ours as a job: the program's own, and those of the run.
struct ToolWords {
  Words own;
  Words run;
};

/// Flags that `options` knows by their whole name are the program's own, and so is what stands alone behind
/// them; so is --help. All others are the run's.
ToolWords divide(const std::vector<OptionSpec>& options, const Words& words);

/// The path of a program that lies beside the launcher.
std::string beside_launcher(const std::string& program);

/// `lockstep run` of the program that the table belongs to; `run` goes before the run's words. What is wrong
/// with the program's own words is said before any rank starts.
template <class Options>
int run_tool(const OptionTable<Options>& table, const std::string& program, Words run, const Words& words,
             std::ostream& out, std::ostream& err) {
  const ToolWords divided = divide(table.specs(), words);
  if (!parse_or_help(table, divided.own, out)) {
    out << "\nAll other options are those of lockstep run, as in --nproc-per-node 4.\n";
    return 0;
  }
  run.insert(run.end(), divided.run.begin(), divided.run.end());
  run.push_back(beside_launcher(program));
  run.insert(run.end(), divided.own.begin(), divided.own.end());
  return run_command(run, out, err);
}

}  // namespace lockstep::launch
