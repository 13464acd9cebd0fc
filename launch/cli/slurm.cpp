#include "cli/slurm.hpp"

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "process/words.hpp"
#include "process/worker_process.hpp"
#include "slurm/script.hpp"

namespace lockstep::launch {
namespace {

int list_templates(const Words& words, std::ostream& out, std::ostream&) {
  struct None {};
  const OptionTable<None> table("lockstep slurm templates",
                                "Lists the templates of batch scripts, with what each is for.");
  if (!parse_or_help(table, words, out)) return 0;
  for (const auto& each : slurm_templates()) {
    // Its second line describes it.
    const auto start = each.text.find("\n# ") + 3;
    out << fmt::format("{}: {}\n", each.name, each.text.substr(start, each.text.find('\n', start) - start));
  }
  return 0;
}

std::string script_of(const OptionTable<SlurmOptions>::Parsed& parsed) {
  return slurm_script(parsed, std::filesystem::read_symlink("/proc/self/exe"));
}

int print_script(const Words& words, std::ostream& out, std::ostream&) {
  if (const auto parsed = parse_or_help(slurm_option_table(), words, out)) out << script_of(*parsed);
  return 0;
}

/// Makes a file in memory the standard input; a pipe would block until it is read.
void read_from(const std::string& text) {
  const int file = memfd_create("batch script", MFD_CLOEXEC);
  if (file < 0 || write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      lseek(file, 0, SEEK_SET) != 0 || dup2(file, STDIN_FILENO) < 0) {
    throw formatted<Error>("cannot hold the script in memory: {}.", std::strerror(errno));
  }
}

/// Without what a step or a job has told its processes, which sbatch would take for its own options, or pass
/// on to the new job's steps: CPU binding, sizes, devices. As from a login node.
Environment login_environment(Environment environment) {
  if (!environment.contains("SLURM_JOB_ID")) return environment;
  static const std::set<std::string_view> kSettings{"SLURM_CONF",  "SLURM_CLUSTERS",   "SLURM_EXIT_ERROR",
                                                    "SLURM_JWT",   "SLURM_JWT_PATH",   "SLURM_EXIT_IMMEDIATE",
                                                    "SLURM_UMASK", "SLURM_TIME_FORMAT"};
  const bool has_devices = environment.contains("SLURM_JOB_GPUS") || environment.contains("SLURM_STEP_GPUS");
  std::erase_if(environment, [&](const auto& variable) {
    const std::string_view name = variable.first;
    const auto begins = [&](std::string_view prefix) { return name.starts_with(prefix); };
    const bool of_devices = name == "CUDA_VISIBLE_DEVICES" || name == "ROCR_VISIBLE_DEVICES" ||
                            name == "ZE_AFFINITY_MASK" || name == "GPU_DEVICE_ORDINAL";
    return ((begins("SLURM_") || begins("SLURMD_")) && !kSettings.contains(name)) || begins("SRUN_") ||
           begins("PMI_") || begins("PMIX_") || (has_devices && of_devices);
  });
  return environment;
}

/// Replaces this process by sbatch, which prints the job id (and the cluster, if there are several).
int submit(const Words& words, std::ostream& out, std::ostream&) {
  const auto parsed = parse_or_help(slurm_option_table(), words, out);
  if (!parsed) return 0;
  read_from(script_of(*parsed));
  replace_process({"sbatch", "--parsable"}, login_environment(process_environment()));
}

}  // namespace

int slurm_command(const Words& words, std::ostream& out, std::ostream& err) {
  static const std::vector<Command> actions{
      {"script", "Prints a Slurm batch script that starts a program.", print_script},
      {"submit", "Submits that script, and prints the job id.", submit},
      {"templates", "Lists the templates of these scripts.", list_templates},
  };
  return run_one_of(actions, "lockstep slurm", words, out, err);
}

}  // namespace lockstep::launch
