#pragma once

#include <chrono>

#include "lockstep/comm/store.hpp"

namespace lockstep::comm {

/// The same store over a connection of its own, whose calls wait no longer than `answer` for the store: for
/// what ranks say to each other when something is broken, which may be the way to the store. A store in
/// memory has no connections, and stays as it is.
Store bounded(const Store& store, std::chrono::milliseconds answer);

}  // namespace lockstep::comm
