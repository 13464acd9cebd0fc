#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "cli/cache.hpp"
#include "cli/checkpoint.hpp"
#include "cli/data.hpp"
#include "cli/diagnose.hpp"
#include "cli/env.hpp"
#include "cli/job_tools.hpp"
#include "cli/new.hpp"
#include "cli/report.hpp"
#include "cli/run.hpp"
#include "cli/slurm.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/version.hpp"
#include "process/worker_process.hpp"

namespace {

using namespace lockstep;
using namespace lockstep::launch;

constexpr int kUsageStatus = 2;

/// The versions of the headers that this build used; `lockstep env` loads the library and asks it.
int print_versions(const Words&, std::ostream& out, std::ostream&) {
  out << fmt::format("lockstep {}\n", version());
  const std::pair<const char*, const char*> libraries[] = {{"LibTorch", LOCKSTEP_LIBTORCH_VERSION},
                                                           {"NCCL", LOCKSTEP_NCCL_VERSION},
                                                           {"Arrow", LOCKSTEP_ARROW_VERSION}};
  for (const auto& [name, text] : libraries)
    out << fmt::format("{} {}\n", name, *text == '\0' ? "not built" : text);
  return 0;
}

const std::vector<Command>& commands() {
  static const std::vector<Command> all{
      {"run", "Starts a program as several ranks on this host.", run_command},
      {"stacks", "Makes a running 'lockstep run' print the stacks of its ranks.", stacks_command},
      {"trace", "Analyzes the ranks' traces: which rank waits for which.", trace_command},
      {"report", "Draws a training, or several beside each other, as one HTML file.", report_command},
      {"check", "Checks connections, results and links between the ranks of a job.", check_command},
      {"bench", "Benchmarks collectives: lockstep bench comm --nproc-per-node 2.", bench_command},
      {"cache", "Lists, explains and removes the cached results of map.", cache_command},
      {"prepare", "Runs a program once, as a single process, to prepare its data.", prepare_command},
      {"stage", "Copies a data set to this node's local disk.", stage_command},
      {"tokenizer", "Trains tokenizers, and converts texts to ids and back.", tokenizer_command},
      {"checkpoint", "Lists, verifies, compares and merges checkpoints.", checkpoint_command},
      {"new", "Creates a project with a trainer: lockstep new NAME.", new_command},
      {"test", "Checks this installation on several ranks: lockstep test --nproc-per-node 4.", test_command},
      {"env", "Prints versions, the host and environment variables, for bug reports.", env_command},
      {"slurm", "Prints or submits a batch script for Slurm.", slurm_command},
      {"--version", "Prints the versions of Lockstep and of the libraries that it was built with.",
       print_versions},
      {"--cmake-prefix", "Prints the folder for CMAKE_PREFIX_PATH.",
       [](const Words&, std::ostream& out, std::ostream&) {
         out << std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path().string() << '\n';
         return 0;
       }},
  };
  return all;
}

/// "lockstep cache", for error messages; "lockstep" if the command is unknown.
std::string program_of(const Words& words) {
  const bool known = !words.empty() && std::ranges::count(commands(), words.front(), &Command::name) > 0;
  return known ? "lockstep " + words.front() : "lockstep";
}

int complain(const Words& words, const std::exception& error, int status) {
  std::cerr << program_of(words) + ": " + error.what() + "\n";
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_descriptors();
  const Words words(argv + (argc > 0 ? 1 : 0), argv + argc);
  try {
    return run_one_of(commands(), "lockstep", words, std::cout, std::cerr);
  } catch (const UsageError& error) {
    return complain(words, error, kUsageStatus);
  } catch (const SpawnError& error) {
    return complain(words, error, error.exit_code());
  } catch (const std::exception& error) {
    return complain(words, error, 1);
  }
}
