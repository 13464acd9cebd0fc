#include <algorithm>
#include <iostream>

#include "cli/commands.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/version.hpp"
#include "process/worker_process.hpp"

namespace lockstep::launch {
namespace {

constexpr int kUsageStatus = 2;

std::string usage() {
  std::string text = "usage: lockstep COMMAND ...\n\ncommands:\n";
  for (const auto& command : commands()) {
    std::string name = command.name;
    name.resize(12, ' ');
    text += "  " + name + command.summary + '\n';
  }
  return text +
         "\n  --help      Shows this text and ends.\n"
         "  --version   Shows the version and ends.\n\n"
         "lockstep COMMAND --help shows the options of a command.\n";
}

int run_named(const Command& command, const Words& words) {
  const auto complain = [&](const std::exception& error) {
    std::cerr << std::string("lockstep ") + command.name + ": " + error.what() + "\n";
  };
  try {
    return command.run(words, std::cout, std::cerr);
  } catch (const UsageError& error) {
    complain(error);
    return kUsageStatus;
  } catch (const SpawnError& error) {
    complain(error);
    return error.exit_code();
  } catch (const std::exception& error) {
    complain(error);
    return 1;
  }
}

int dispatch(const Words& words) {
  const std::string name = words.empty() ? "" : words.front();
  if (name == "--version") {
    std::cout << "lockstep " << version() << '\n';
    return 0;
  }
  if (name == "--help" || name == "-h" || name == "help") {
    std::cout << usage();
    return 0;
  }
  for (const auto& command : commands()) {
    if (name == command.name) return run_named(command, {words.begin() + 1, words.end()});
  }
  std::cerr << (words.empty() ? "lockstep: expected a command.\n"
                              : "lockstep: unknown command '" + name + "'.\n")
            << usage();
  return kUsageStatus;
}

}  // namespace

const std::vector<Command>& commands() {
  static const std::vector<Command> all{
      {"run", "Starts a program as several ranks on this host.", run_command},
      {"stacks", "Makes a running 'lockstep run' print where its ranks are.", stacks_command},
      {"trace", "Tells from the ranks' traces who waits for whom.", trace_command},
      {"check", "Checks that the nodes of a job reach each other and compute right sums.", check_command},
      {"bench", "Measures the collectives of a job's ranks: lockstep bench comm --nproc-per-node 2.",
       bench_command},
      {"cache", "Lists, explains and removes what map has kept.", cache_command},
      {"prepare", "Runs a program once, alone, so that its data are prepared.", prepare_command},
      {"stage", "Copies a data set to this node's own disk.", stage_command},
      {"checkpoint", "Lists, checks, compares and joins saved trainings.", checkpoint_command},
      {"new", "Writes a project with a trainer to start from: lockstep new NAME.", new_command},
      {"test", "Checks this installation on several ranks: lockstep test --nproc-per-node 4.", test_command},
      {"env", "Prints versions, the host and the variables that matter, for reports of problems.",
       env_command},
      {"slurm", "Prints or submits a batch script for Slurm.", slurm_command},
  };
  return all;
}

}  // namespace lockstep::launch

int main(int argc, char** argv) {
  lockstep::launch::open_standard_descriptors();
  return lockstep::launch::dispatch(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
}
