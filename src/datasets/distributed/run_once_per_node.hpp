#pragma once

#include <functional>
#include <string>

#include "datasets/distributed/work_session.hpp"

namespace lockstep {

/// Runs `work` once per node: local rank 0 calls it, and all ranks of the node get its result. `work` gets a
/// function that publishes its progress. Returns when all nodes have finished; a failure on one is an error
/// on all. *Collective*.
std::string run_once_per_node(
    const DistributedContext& ranks, const std::string& what,
    const std::function<std::string(const std::function<void(const std::string&)>&)>& work,
    coordination::WaitTimes times = {});

}  // namespace lockstep
