#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/environment.hpp"

namespace lockstep::launch {

/// Names and what is known about them, in the order in which they are shown.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// The operating system, CPUs, memory, devices, networks and limits of this host. What cannot be found out is
/// left out. Never throws for what it finds. *Local*.
Facts host_facts();

/// What the library says about itself: its version, LibTorch's, the CUDA devices and NCCL. It is loaded for
/// this, from beside the launcher (`../lib`) or wherever the system finds it; where it cannot be, the one
/// fact is why not. *Local*.
Facts library_facts();

/// For CUDA, NCCL, Slurm and data sets: whether they can be used here, and if not, why and how to get them.
/// `library` is what library_facts() gave, `library_folder` where Lockstep's libraries lie. *Local*.
Facts feature_facts(const Facts& library, const std::filesystem::path& library_folder, bool has_driver,
                    const std::string& search_path);

/// The variables that decide how jobs run: the contract between launcher and ranks, and those of Lockstep,
/// LibTorch, NCCL, Gloo, OpenMP, CUDA and the scheduler. Values of those whose name speaks of a secret are
/// "(set)".
Facts variable_facts(const Environment& environment);

}  // namespace lockstep::launch
