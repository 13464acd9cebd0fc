#pragma once

#include <memory>

#include "comm/store_session.hpp"
#include "comm/transport/transport.hpp"
#include "lockstep/comm/process_group.hpp"

namespace lockstep::comm {

struct TransportOptions {
  /// The group's communication thread may get a CPU of its own, which is for the group of all ranks: parts of
  /// it do not know which CPUs the others have.
  bool binds = false;
  /// Ranks that do not share memory verify their calls. Those that do always do.
  bool verifies = true;
};

struct MadeTransport {
  std::unique_ptr<Transport> transport;
  int cpu = -1;  // Where the thread runs that communicates; -1: anywhere.
};

/// Shared memory where ranks of the group share it, Gloo between those that do not; or what the options ask
/// for. `store` has a key prefix that nobody else uses. *Collective*. Throws CommunicationError when shared
/// memory is asked for and the ranks do not share any, or when there is too little of it.
MadeTransport make_transport(const GroupInfo& info, const Store& store, const ProcessGroupOptions& options,
                             const TransportOptions& how);

}  // namespace lockstep::comm
