#pragma once

#include <chrono>
#include <string>

#include "membership.hpp"
#include "store_barrier.hpp"

namespace lockstep::comm {

/// Waits until all ranks of a group have come, before anything is exchanged; gives what they meet at from
/// then on. `store` is the group's corner. *Collective*. Throws TimeoutError naming those who do not come;
/// CommunicationError, on every rank that has come or still comes, when two processes claim one rank or have
/// different ideas of the group's size: it names both.
StoreBarrier come_together(const Store& store, const Membership& members, std::chrono::milliseconds timeout);

/// Ends the meeting of ranks that cannot be a group: who waits in come_together(), and who comes to it later,
/// throws with these words.
void call_off(const Store& store, const std::string& words);

}  // namespace lockstep::comm
