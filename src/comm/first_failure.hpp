#pragma once

#include <chrono>
#include <string>

#include "coordination/rank_session.hpp"
#include "lockstep/comm/store.hpp"

namespace lockstep::comm {

/// Where the ranks of a group post the first failure: a rank that finds a connection closed reads the cause
/// there. It has its own connection, which does not wait for the program's use of the store, nor long for a
/// store that is gone. One thread at a time; only the constructor throws.
class FirstFailure {
 public:
  /// `store` must have a key prefix that nobody else uses.
  FirstFailure(const Store& store, GroupInfo members);

  /// Adds to the failures posted by others. Errors are ignored: the store may be unreachable.
  void post(const std::string& reason) const noexcept;

  /// The first failure that was posted or is posted within `limit`; otherwise "".
  std::string read(std::chrono::milliseconds limit) const noexcept;

 private:
  coordination::RankSession session_;
};

}  // namespace lockstep::comm
