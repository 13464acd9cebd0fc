#pragma once

#include <string>

#include "net/deadline.hpp"

namespace lockstep::shm {

/// Where ranks that cannot talk to each other yet leave notes: a corner of the job's store that nobody else
/// uses. Implemented outside, so that this folder needs no store.
class BootstrapStore {
 public:
  virtual ~BootstrapStore() = default;
  virtual void post(const std::string& key, const std::string& value) = 0;
  /// Waits for the note; throws TimeoutError when the deadline comes first.
  virtual std::string read(const std::string& key, net::Deadline deadline) = 0;
};

}  // namespace lockstep::shm
