#include "prepare/prepare_command.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ostream>

#include "lockstep/core/prepare.hpp"

namespace lockstep::launch {
namespace {

constexpr int kUsageStatus = 2;
constexpr int kNotExecutable = 126;
constexpr int kNotFound = 127;

constexpr const char* kUsage =
    "usage: lockstep prepare [--] PROGRAM [ARGUMENTS]\n\n"
    "Runs a program once, as a single process, so that its data are prepared before the job's ranks begin:\n"
    "it finds LOCKSTEP_PREPARE=1, loads and maps its data, which puts the results into the cache, and ends\n"
    "(lockstep::preparing). A rank's variables are replaced by those of a world of one.\n";

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

}  // namespace

int prepare_command(const std::vector<std::string>& words, std::ostream& out, std::ostream& err) {
  const bool dashes = !words.empty() && words.front() == "--";
  const std::vector<std::string> program(words.begin() + (dashes ? 1 : 0), words.end());
  if (!dashes && !words.empty() && (words.front() == "--help" || words.front() == "-h")) {
    out << kUsage;
    return 0;
  }
  if (program.empty() || (!dashes && program.front().starts_with("-"))) {
    err << "lockstep prepare: expected a program.\n" << kUsage;
    return kUsageStatus;
  }
  const Environment environment = process_environment();
  const std::string task = find_variable(environment, "SLURM_PROCID").value_or("0");
  if (task != "0") {
    err << "lockstep prepare: task " << task << " has nothing to do: task 0 prepares. Use srun --ntasks=1.\n";
    return 0;
  }
  return become(program, preparing_environment(environment), err);
}

}  // namespace lockstep::launch
