#include <filesystem>

#include "cli/commands.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/datasets/prepare.hpp"
#include "process/worker_group.hpp"

namespace lockstep::launch {
namespace {

struct PrepareOptions {
  std::string list;
  std::vector<std::string> program;
};

OptionTable<PrepareOptions> prepare_options() {
  return OptionTable<PrepareOptions>(
             "lockstep prepare",
             "Runs a program once, as a single process, so that its data are prepared before the job's ranks "
             "begin: it finds LOCKSTEP_PREPARE=1, loads and maps its data, which puts the results into the "
             "cache, and ends (lockstep::preparing). A rank's variables are replaced by those of a world of "
             "one.")
      .rest("program ...", &PrepareOptions::program, "The program and its arguments.", true)
      .grammar({.stop_at_first_positional = true, .environment_prefix = ""})
      .add("list", &PrepareOptions::list,
           "The cache entries that the program made or found are listed in FILE, made anew, for 'lockstep "
           "stage --list FILE'.",
           metavar("FILE"));
}

/// An empty list: what an earlier run has found is not this one's.
void begin_list(const std::string& list, Environment& environment) {
  const auto path = std::filesystem::absolute(list);
  AtomicFile(path).commit();
  environment[kPreparedListVariable] = path.string();
}

}  // namespace

int prepare_command(const Words& words, std::ostream& out, std::ostream& err) {
  const auto parsed = parse_or_help(prepare_options(), words, out);
  if (!parsed) return 0;
  Environment environment = process_environment();
  const std::string task = find_variable(environment, "SLURM_PROCID").value_or("0");
  if (task != "0") {
    err << "lockstep prepare: task " << task << " has nothing to do: task 0 prepares. Use srun --ntasks=1.\n";
    return 0;
  }
  environment = preparing_environment(environment);
  if (!parsed->options.list.empty()) begin_list(parsed->options.list, environment);
  replace_process(parsed->options.program, environment);
}

}  // namespace lockstep::launch
