#pragma once

#include <functional>
#include <string>

#include "store_session.hpp"

namespace lockstep {

/// Does something once on each node: local rank 0 calls `work`, and all ranks of its node get what it
/// returns. `work` is given a function that tells the others how far it is. Returns when all nodes are done;
/// what fails on one fails on all. *Collective*.
std::string run_once_per_node(
    const DistributedContext& ranks, const std::string& what,
    const std::function<std::string(const std::function<void(const std::string&)>&)>& work,
    StoreSessionOptions options = {});

}  // namespace lockstep
