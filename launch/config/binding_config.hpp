#pragma once

#include <string>
#include <vector>

#include "config/run_options.hpp"
#include "lockstep/core/environment.hpp"
#include "process/scoped_binding.hpp"

namespace lockstep::launch {

/// Works out --cpu-binding and --numa-binding for each of the `ranks` of this node; nothing where they are
/// not to be bound. Looks at the host: its CPUs, those that this process may use, its GPUs. Throws
/// UsageError. *Local*.
std::vector<CpuBinding> cpu_bindings(const RunOptions& options, int ranks, const Environment& environment,
                                     const std::string& sys = "/sys", const std::string& proc = "/proc",
                                     const std::string& dev = "/dev");

/// "CPUs 0-3 (memory of NUMA node 0)".
std::string binding_text(const CpuBinding& binding);

}  // namespace lockstep::launch
