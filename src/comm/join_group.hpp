#pragma once

#include <chrono>
#include <string>

#include "coordination/barrier.hpp"
#include "lockstep/comm/store.hpp"

namespace lockstep::comm {

/// Waits until all ranks of a group have arrived, before anything is exchanged; returns their barrier.
/// `store` has the group's key prefix. *Collective*. Throws TimeoutError naming the missing ranks. Throws
/// CommunicationError, on every rank that has arrived or arrives later, if two processes claim one rank or
/// disagree on the group's size; it names both. `probe` is called at intervals while ranks are missing; what
/// it throws ends the wait.
coordination::Barrier join_group(const Store& store, const GroupInfo& members,
                                 std::chrono::milliseconds timeout,
                                 const coordination::Barrier::Probe& probe = nullptr);
/// Between two calls of a probe while a group joins.
inline constexpr std::chrono::milliseconds kJoinLook{50};

/// Ends the join of ranks that cannot form a group: ranks that wait in join_group() or call it later throw
/// with this reason. *Local*.
void abort_join(const Store& store, const std::string& reason);

}  // namespace lockstep::comm
