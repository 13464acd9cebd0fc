#pragma once

#include <string>
#include <vector>

#include "config/run_options.hpp"
#include "lockstep/core/environment.hpp"
#include "process/affinity.hpp"

namespace lockstep::launch {

/// Number of NVIDIA GPUs that a program would see: the device files nvidia0, nvidia1, ... in `folder`,
/// limited by CUDA_VISIBLE_DEVICES as in CUDA (the list ends at the first entry that is not a device).
/// *Local*.
int visible_gpus(const Environment& environment, const std::string& folder = "/dev");

/// The number of ranks for `text` (a number, "auto", "cpu" or "gpu") on this host. "cpu" counts the CPUs that
/// this process may use, so a job with a share of a node gets ranks for its share. Throws UsageError.
int ranks_per_node(const std::string& text, const Environment& environment,
                   const std::string& folder = "/dev");

/// The device of a rank with --virtual-local-rank: its entry of CUDA_VISIBLE_DEVICES, or its local rank if
/// that is unset. Throws UsageError if the list is too short.
std::string virtual_device(const Environment& environment, int local_rank);

/// Evaluates --cpu-binding and --numa-binding for this node's `ranks`; empty if they are not bound. Reads the
/// host's topology, the CPUs that this process may use, and the GPUs. Throws UsageError. *Local*.
std::vector<CpuBinding> cpu_bindings(const RunOptions& options, int ranks, const Environment& environment,
                                     const std::string& sys = "/sys", const std::string& proc = "/proc",
                                     const std::string& dev = "/dev");

/// "CPUs 0-3 (memory of NUMA node 0)".
std::string binding_text(const CpuBinding& binding);

}  // namespace lockstep::launch
