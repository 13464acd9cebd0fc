#pragma once

#include <chrono>
#include <string>

#include "lockstep/comm/store.hpp"

namespace lockstep::comm {

/// The same store over a connection of its own, whose calls wait no longer than `answer` for the store: for
/// what ranks say to each other when something is broken, which may be the way to the store. A store in
/// memory has no connections, and stays as it is.
Store bounded(const Store& store, std::chrono::milliseconds answer);

/// Where the ranks of a group leave word of the first failure: whoever finds a connection closed reads there
/// what had happened. Over a connection of its own, which neither waits for the program's use of the store
/// nor long for a store that is gone. One thread at a time; nothing throws but the constructor.
class FirstFailure {
 public:
  /// `store` has a key prefix that nobody else uses.
  explicit FirstFailure(const Store& store);

  /// Leaves word behind what others have left, without waiting for the store, which may be out of reach.
  void post(const std::string& words) const noexcept;

  /// What was left first, or is within `patience`; else "".
  std::string read(std::chrono::milliseconds patience) const noexcept;

 private:
  Store store_;
};

}  // namespace lockstep::comm
