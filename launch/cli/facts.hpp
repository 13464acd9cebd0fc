#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/environment.hpp"

namespace lockstep::launch {

/// Names and values, in the order in which they are shown.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// The operating system, CPUs, memory, devices, networks and limits of this host. Unknown facts are left out.
/// Does not throw for what it finds. *Local*.
Facts host_facts();

/// What the library reports: its version, LibTorch's, the CUDA devices and NCCL. The library is loaded for
/// this, from beside the launcher (`../lib`) or the system's search path. If this fails, the only fact is the
/// reason. *Local*.
Facts library_facts();

/// For CUDA, NCCL, Slurm and data sets: whether they can be used here and, if not, why, and how to get them.
/// `library` is the result of library_facts(), `library_folder` the folder of Lockstep's libraries. *Local*.
Facts feature_facts(const Facts& library, const std::filesystem::path& library_folder, bool has_driver,
                    const std::string& search_path);

/// The variables that affect jobs: those that the launcher sets for ranks, and those of Lockstep, LibTorch,
/// NCCL, Gloo, OpenMP, CUDA and the scheduler. The value is "(set)" if the name suggests a secret.
Facts variable_facts(const Environment& environment);

}  // namespace lockstep::launch
