#include <unistd.h>

#include <iostream>
#include <string>
#include <vector>

#include "agent/agent.hpp"
#include "agent/dry_run.hpp"
#include "bench/bench_command.hpp"
#include "cache/cache_command.hpp"
#include "checkpoint/checkpoint_command.hpp"
#include "config/launch_config.hpp"
#include "config/slurm_config.hpp"
#include "environment/env_command.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/version.hpp"
#include "new/new_command.hpp"
#include "prepare/prepare_command.hpp"
#include "process/process_supervisor.hpp"
#include "process/worker_process.hpp"
#include "rendezvous/open_coordinator.hpp"
#include "slurm/command.hpp"
#include "stage/stage_command.hpp"
#include "trace/trace_command.hpp"
#include "watch/stacks_command.hpp"

namespace {

using namespace lockstep;
using namespace lockstep::launch;

constexpr int kUsageStatus = 2;

constexpr const char* kUsage =
    "usage: lockstep COMMAND ...\n\n"
    "commands:\n"
    "  run         Starts a program as several ranks on this host; see lockstep run --help.\n"
    "  stacks      Makes a running 'lockstep run' print where its ranks are; see lockstep stacks --help.\n"
    "  trace       Tells from the ranks' traces who waits for whom; see lockstep trace --help.\n"
    "  bench       Measures the collectives of a job's ranks: lockstep bench comm --nproc-per-node 2.\n"
    "  cache       Lists, explains and removes what map has kept; see lockstep cache --help.\n"
    "  prepare     Runs a program once, alone, so that its data are prepared; see lockstep prepare --help.\n"
    "  stage       Copies a data set to this node's own disk; see lockstep stage --help.\n"
    "  checkpoint  Lists, checks, compares and joins saved trainings; see lockstep checkpoint --help.\n"
    "  new         Writes a project with a trainer to start from: lockstep new NAME.\n"
    "  test        Checks this installation on several ranks: lockstep test --nproc-per-node 4.\n"
    "  env         Prints versions, the host and the variables that matter, for reports of problems.\n"
    "  slurm       Prints or submits a batch script for Slurm; see lockstep slurm --help.\n\n"
    "  --help      Shows this text and ends.\n"
    "  --version   Shows the version and ends.\n";

/// The ranks' own code, or 1 for whoever expects what torchrun gives.
int exit_status(const LaunchConfig& plan, int status) {
  return plan.torchrun_exit_codes && status != 0 ? 1 : status;
}

int launch(const LaunchConfig& plan, Environment environment) {
  // Goes last: while it waits for a reader, signals act as on any program.
  Console console(environment);
  // Before the first line, and so before any thread: the guardian is forked by it.
  ProcessSupervisor supervision(environment, plan.end_signals, plan.keep_daemons);
  if (plan.log_level <= LogLevel::warning) {
    for (const auto& notice : plan.notices) console.log() << "lockstep run: " + notice + "\n" << std::flush;
  }
  const JobSecret secret = secret_for(plan, environment);
  const auto coordinator = open_coordinator(plan, secret);
  environment["LOCKSTEP_JOB_TOKEN"] = secret.value();
  supervision.mark.add_to(environment);
  try {
    return exit_status(plan, Agent(plan, environment, supervision, *coordinator, console).run());
  } catch (const SpawnError& error) {
    console.log() << std::string("lockstep run: ") + error.what() + "\n" << std::flush;
    return exit_status(plan, error.exit_code());
  }
}

int run(const std::vector<std::string>& words) {
  const Environment environment = process_environment();
  const auto parsed = run_option_table().parse(words, environment);
  if (parsed.help) {
    std::cout << run_option_table().help();
    return 0;
  }
  LaunchConfig plan = make_config(parsed, environment);
  complete_from_slurm(parsed, environment, plan);
  if (parsed.options.dry_run) {
    print_config(plan, environment, std::cout);
    return 0;
  }
  return launch(plan, environment);
}

int dispatch(const std::vector<std::string>& words) {
  const std::string command = words.empty() ? "" : words.front();
  if (command == "run") return run({words.begin() + 1, words.end()});
  if (command == "stacks") return stacks_command({words.begin() + 1, words.end()}, std::cout);
  if (command == "trace") return trace_command({words.begin() + 1, words.end()}, std::cout);
  if (command == "bench") return run(bench_words({words.begin() + 1, words.end()}));
  if (command == "cache") return cache_command({words.begin() + 1, words.end()}, std::cout, std::cerr);
  if (command == "new") return new_command({words.begin() + 1, words.end()}, std::cout, std::cerr);
  if (command == "prepare") return prepare_command({words.begin() + 1, words.end()}, std::cout, std::cerr);
  if (command == "stage") return stage_command({words.begin() + 1, words.end()}, std::cout, std::cerr);
  if (command == "checkpoint") return checkpoint_command({words.begin() + 1, words.end()}, std::cout);
  if (command == "env")
    return env_command({words.begin() + 1, words.end()}, process_environment(), std::cout);
  if (command == "test") return run(test_words({words.begin() + 1, words.end()}));
  if (command == "slurm") return slurm_command({words.begin() + 1, words.end()}, std::cout, std::cerr);
  if (command == "--version") {
    std::cout << "lockstep " << version() << '\n';
    return 0;
  }
  if (command == "--help" || command == "-h" || command == "help") {
    std::cout << kUsage;
    return 0;
  }
  std::cerr << (words.empty() ? "lockstep: expected a command.\n"
                              : "lockstep: unknown command '" + command + "'.\n")
            << kUsage;
  return kUsageStatus;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return dispatch(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
  } catch (const UsageError& error) {
    std::cerr << "lockstep run: " << error.what() << '\n';
    return kUsageStatus;
  } catch (const std::exception& error) {
    std::cerr << "lockstep run: " << error.what() << '\n';
    return 1;
  }
}
