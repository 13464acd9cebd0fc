#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "cli/commands.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/datasets/prepare.hpp"

namespace lockstep::launch {
namespace {

constexpr int kNotExecutable = 126;
constexpr int kNotFound = 127;

struct PrepareOptions {
  std::string list;
  std::vector<std::string> program;
};

const OptionTable<PrepareOptions>& prepare_option_table() {
  static const auto table =
      OptionTable<PrepareOptions>(
          "lockstep prepare",
          "Runs a program once, as a single process, so that its data are prepared before the job's ranks "
          "begin: it finds LOCKSTEP_PREPARE=1, loads and maps its data, which puts the results into the "
          "cache, "
          "and ends (lockstep::preparing). A rank's variables are replaced by those of a world of one.")
          .rest("program ...", &PrepareOptions::program, "The program and its arguments.", true)
          .grammar({.stop_at_first_positional = true, .environment_prefix = ""})
          .add(
              "list", &PrepareOptions::list,
              "The cache entries that the program made or found are listed in FILE, made anew, for 'lockstep "
              "stage --list FILE'.",
              metavar("FILE"));
  return table;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (auto& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

int become(std::vector<std::string> program, const Environment& environment, std::ostream& err) {
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  execvpe(program.front().c_str(), pointers(program).data(), pointers(variables).data());
  const int error = errno;
  err << "lockstep prepare: cannot start '" << program.front() << "': " << std::strerror(error) << ".\n";
  return error == ENOENT ? kNotFound : kNotExecutable;
}

/// An empty list: what an earlier run has found is not this one's.
void begin_list(const std::string& list, Environment& environment) {
  const auto path = std::filesystem::absolute(list);
  AtomicFile(path).commit();
  environment[kPreparedListVariable] = path.string();
}

}  // namespace

int prepare_command(const Words& words, std::ostream& out, std::ostream& err) {
  const auto parsed = parse_or_help(prepare_option_table(), words, out);
  if (!parsed) return 0;
  Environment environment = process_environment();
  const std::string task = find_variable(environment, "SLURM_PROCID").value_or("0");
  if (task != "0") {
    err << "lockstep prepare: task " << task << " has nothing to do: task 0 prepares. Use srun --ntasks=1.\n";
    return 0;
  }
  environment = preparing_environment(environment);
  if (!parsed->options.list.empty()) begin_list(parsed->options.list, environment);
  return become(parsed->options.program, environment, err);
}

}  // namespace lockstep::launch
