#pragma once

#include <chrono>
#include <string>

#include "comm/group_info.hpp"
#include "comm/store_barrier.hpp"

namespace lockstep::comm {

/// Waits until all ranks of a group have come, before anything is exchanged; gives what they meet at from
/// then on. `store` has the group's key prefix. *Collective*. Throws TimeoutError naming those who do not
/// come; CommunicationError, on every rank that has come or still comes, when two processes claim one rank or
/// have different ideas of the group's size: it names both.
StoreBarrier join_group(const Store& store, const GroupInfo& members, std::chrono::milliseconds timeout);

/// Ends the meeting of ranks that cannot be a group: who waits in join_group(), and who comes to it later,
/// throws with these words.
void abort_join(const Store& store, const std::string& words);

}  // namespace lockstep::comm
