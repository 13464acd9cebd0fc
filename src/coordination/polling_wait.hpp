#pragma once

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "coordination/key_value_store.hpp"
#include "net/deadline.hpp"

namespace lockstep {

/// KeyValueStore::wait() by looking again and again, at pauses that grow from 1 to 100 ms: for a connection
/// that several threads share, which a waiting request would occupy. *Local*.
inline bool poll_for_key(KeyValueStore& store, const std::string& key, std::chrono::milliseconds limit) {
  constexpr std::chrono::milliseconds kShortest{1}, kLongest{100};
  const net::Deadline deadline = net::Clock::now() + limit;
  for (auto pause = kShortest;; pause = std::min(2 * pause, kLongest)) {
    if (store.contains(key)) return true;
    const auto left = net::left_until(deadline);
    if (left == left.zero()) return false;
    std::this_thread::sleep_for(std::min(pause, left));
  }
}

}  // namespace lockstep
