#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <ostream>

#include "cli/commands.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/datasets/prepare.hpp"

namespace lockstep::launch {
namespace {

constexpr int kUsageStatus = 2;
constexpr int kNotExecutable = 126;
constexpr int kNotFound = 127;

constexpr const char* kUsage =
    "usage: lockstep prepare [--list FILE] [--] PROGRAM [ARGUMENTS]\n\n"
    "Runs a program once, as a single process, so that its data are prepared before the job's ranks begin:\n"
    "it finds LOCKSTEP_PREPARE=1, loads and maps its data, which puts the results into the cache, and ends\n"
    "(lockstep::preparing). A rank's variables are replaced by those of a world of one.\n\n"
    "  --list FILE  The cache entries that the program made or found are listed in FILE, made anew, for\n"
    "               'lockstep stage --list FILE'.\n";

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

struct PrepareWords {
  std::string list;
  std::vector<std::string> program;
};

/// What the words say; without a program when they are wrong.
PrepareWords parse(const Words& words) {
  PrepareWords result;
  auto word = words.begin();
  if (words.end() - word >= 2 && *word == "--list") {
    result.list = word[1];
    word += 2;
  }
  const bool dashes = word != words.end() && *word == "--";
  if (dashes) ++word;
  if (word != words.end() && (dashes || !word->starts_with("-"))) result.program.assign(word, words.end());
  return result;
}

bool asks_for_help(const Words& words) {
  return !words.empty() && (words.front() == "--help" || words.front() == "-h");
}

/// An empty list: what an earlier run has found is not this one's.
void begin_list(const std::string& list, Environment& environment) {
  const auto path = std::filesystem::absolute(list);
  AtomicFile(path).commit();
  environment[kPreparedListVariable] = path.string();
}

}  // namespace

int prepare_command(const Words& words, std::ostream& out, std::ostream& err) {
  if (asks_for_help(words)) {
    out << kUsage;
    return 0;
  }
  const PrepareWords parsed = parse(words);
  if (parsed.program.empty()) {
    err << "lockstep prepare: expected a program.\n" << kUsage;
    return kUsageStatus;
  }
  Environment environment = process_environment();
  const std::string task = find_variable(environment, "SLURM_PROCID").value_or("0");
  if (task != "0") {
    err << "lockstep prepare: task " << task << " has nothing to do: task 0 prepares. Use srun --ntasks=1.\n";
    return 0;
  }
  environment = preparing_environment(environment);
  if (!parsed.list.empty()) begin_list(parsed.list, environment);
  return become(parsed.program, environment, err);
}

}  // namespace lockstep::launch
