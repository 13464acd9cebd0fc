#pragma once

#include <memory>

#include "comm/transport/transport.hpp"
#include "shm/group.hpp"

namespace lockstep::comm {

/// For ranks on several hosts: shared memory within each host, and Gloo between a few leaders of each.
/// `store` must have a key prefix that nobody else uses. *Collective*.
std::unique_ptr<Transport> hierarchical_transport(const GroupInfo& info, shm::Group::Joined joined,
                                                  const Store& store, const ProcessGroupOptions& options,
                                                  bool verifies);

}  // namespace lockstep::comm
