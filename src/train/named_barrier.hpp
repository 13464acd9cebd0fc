#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/comm/store.hpp"

namespace lockstep::train {

/// Named barriers through a store: the n-th call on each rank is the same barrier. Each rank records where it
/// is, so that the others can report it. See ProcessExecution::wait_for_everyone_at. One thread per rank at a
/// time.
class NamedBarrier {
 public:
  struct Place {
    int rank = 0;
    int size = 1;
    /// Time until the missing ranks are reported, and until TimeoutError.
    std::chrono::milliseconds warn_after = std::chrono::seconds(30);
    std::chrono::milliseconds timeout = std::chrono::minutes(30);
  };

  NamedBarrier(const Store& store, const Place& place) : store_(store), place_(place) {}

  void wait(const std::string& name);
  /// Makes the other ranks throw RemoteError with this text.
  void report_failure(const std::string& text) const;

 private:
  void arrive(const std::string& meeting, const std::string& name) const;
  void wait_for_all(const std::string& meeting, const std::string& name) const;
  void throw_if_failed(const std::string& name) const;
  std::vector<int> missing(const std::string& meeting) const;
  std::string report(const std::string& meeting, const std::string& name,
                     std::chrono::milliseconds waited) const;
  void leave(const std::string& meeting) const;

  Store store_;
  Place place_;
  std::int64_t number_ = 0;
};

}  // namespace lockstep::train
