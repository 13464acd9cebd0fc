#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/options.hpp"

namespace lockstep::launch {

/// The options of `lockstep slurm script` and `lockstep slurm submit`.
struct SlurmOptions {
  /// Name of a template; empty: the one that fits the other options.
  std::string template_name;
  int nodes = 1;
  int nproc_per_node = 1;
  /// Only to be compared with what the others come to.
  std::optional<int> ntasks;
  int cpus_per_rank = 1;
  int gpus_per_node = 0;
  /// elastic: the nodes below which the job ends, and how often its ranks are started anew.
  int min_nodes = 1;
  int max_restarts = 3;

  std::optional<std::string> time;
  std::optional<std::string> partition;
  std::optional<std::string> account;
  std::optional<std::string> qos;
  std::optional<std::string> mem;
  std::optional<std::string> job_name;
  std::optional<std::string> output;
  /// Numbers of array tasks, as sbatch takes them.
  std::optional<std::string> array;
  /// Seconds before the time limit at which the job saves and is queued again.
  std::optional<int> signal_before;
  /// Further options of sbatch, without their dashes.
  std::vector<std::string> sbatch;

  /// The program and its arguments; empty: the template's.
  std::vector<std::string> program;
};

/// The command line. *Local*.
const OptionTable<SlurmOptions>& slurm_option_table();

/// A batch script that runs as it is: launch/slurm/templates/<name>.sbatch.
///
/// What 'lockstep slurm' changes in it stands in lines of their own: the directives `#SBATCH --name=value`
/// and the settings `name=value`, of which `program=(...)` is one.
struct SlurmTemplate {
  std::string name;
  std::string text;
};

/// All of them. Written by launch/CMakeLists.txt.
const std::vector<SlurmTemplate>& slurm_templates();

/// The batch script for these options; `launcher` is the path of the launcher that it starts. Throws
/// UsageError when the options contradict each other or the template. *Local*.
std::string slurm_script(const OptionTable<SlurmOptions>::Parsed& parsed, const std::string& launcher);

}  // namespace lockstep::launch
