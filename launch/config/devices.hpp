#pragma once

#include <string>
#include <vector>

#include "config/run_options.hpp"
#include "lockstep/core/environment.hpp"
#include "process/affinity.hpp"

namespace lockstep::launch {

/// NVIDIA GPUs that a program would see: the device files nvidia0, nvidia1, ... in `folder`, cut down by
/// CUDA_VISIBLE_DEVICES as CUDA does it (the list ends at its first entry that names no device). *Local*.
int visible_gpus(const Environment& environment, const std::string& folder = "/dev");

/// The number of ranks that `text` (a number, "auto", "cpu" or "gpu") stands for on this host. CPUs are those
/// on which this process may run, so that a job in a share of a node gets ranks for its share. Throws
/// UsageError.
int ranks_per_node(const std::string& text, const Environment& environment,
                   const std::string& folder = "/dev");

/// The device that --virtual-local-rank gives to a rank: its entry of CUDA_VISIBLE_DEVICES, or its own number
/// where that is unset. Throws UsageError when the list is too short.
std::string virtual_device(const Environment& environment, int local_rank);

/// Works out --cpu-binding and --numa-binding for each of the `ranks` of this node; nothing where they are
/// not to be bound. Looks at the host: its CPUs, those that this process may use, its GPUs. Throws
/// UsageError. *Local*.
std::vector<CpuBinding> cpu_bindings(const RunOptions& options, int ranks, const Environment& environment,
                                     const std::string& sys = "/sys", const std::string& proc = "/proc",
                                     const std::string& dev = "/dev");

/// "CPUs 0-3 (memory of NUMA node 0)".
std::string binding_text(const CpuBinding& binding);

}  // namespace lockstep::launch
