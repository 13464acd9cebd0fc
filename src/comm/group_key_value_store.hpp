#pragma once

#include <chrono>
#include <memory>

#include "coordination/key_value_store.hpp"
#include "coordination/rank_session.hpp"
#include "lockstep/comm/store.hpp"

namespace lockstep::comm {

/// Timeout for values that are already in the store.
inline constexpr std::chrono::seconds kAtOnce{1};

/// What src/coordination needs of a job's store, over its connection: a thread that waits occupies it. `get`
/// waits at most `answer`. Besides what the store throws, a connection that is lost is a ConnectionLost
/// (errors.hpp).
std::shared_ptr<KeyValueStore> key_value_store(Store store, std::chrono::milliseconds answer = kAtOnce);

/// The same for a connection that several threads share: waiting looks again and again.
std::shared_ptr<KeyValueStore> shared_key_value_store(Store store, std::chrono::milliseconds answer);

/// A session of the ranks of a group over that store, with its key prefix.
coordination::RankSession make_session(const Store& store, GroupInfo members);

/// The same store through its own connection, whose calls wait at most `answer` for the store. For
/// communication between ranks after a failure, which may have affected the store too. A store in memory has
/// no connections and is returned unchanged.
Store bounded(const Store& store, std::chrono::milliseconds answer);

}  // namespace lockstep::comm
