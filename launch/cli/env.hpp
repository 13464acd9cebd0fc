#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.hpp"
#include "lockstep/core/environment.hpp"

namespace lockstep::launch {

/// Prints versions, the host and environment variables, for bug reports.
int env_command(const Words& words, std::ostream& out, std::ostream& err);

/// Names and values that `lockstep env` prints, in that order.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// The operating system, CPUs, memory, devices, networks and limits of this host. Unknown facts are left out.
/// Does not throw for what it finds. *Local*.
Facts host_facts();

/// For CUDA, NCCL, Slurm and data sets: whether they can be used here and, if not, why, and how to get them.
/// `library` has what the library reports of itself, `library_folder` is the folder of Lockstep's libraries.
/// *Local*.
Facts feature_facts(const Facts& library, const std::filesystem::path& library_folder, bool has_driver,
                    const std::string& search_path);

/// The variables that affect jobs: those that the launcher sets for ranks, and those of Lockstep, LibTorch,
/// NCCL, Gloo, OpenMP, CUDA and the scheduler. The value is "(set)" if the name suggests a secret.
Facts variable_facts(const Environment& environment);

}  // namespace lockstep::launch
