#pragma once

#include <chrono>
#include <map>
#include <string>

#include "comm/diagnostics/peer_monitor.hpp"
#include "lockstep/comm/store.hpp"

namespace lockstep::comm {

/// The keys of the store through which ranks ask and answer. A question is a round; every rank answers each
/// round once, and rounds are numbered alike everywhere. Throws as Store does. One thread at a time.
class StatusExchange {
 public:
  using Milliseconds = std::chrono::milliseconds;

  StatusExchange(Store store, int rank, int size);

  /// Begins a round: every rank's wait for it ends.
  void begin(std::uint64_t round) const;
  /// Waits for the beginning of a round; false when `limit` passes first.
  bool await(std::uint64_t round, Milliseconds limit) const;
  /// Ends this rank's own wait for a round that nobody has begun.
  void wake_self(std::uint64_t round) const;

  void answer(std::uint64_t round, const RankReport& report) const;
  /// The answers that come within `limit`.
  std::map<int, RankReport> answers(std::uint64_t round, Milliseconds limit) const;

  void depart(const std::string& how) const;
  std::map<int, std::string> departed() const;

 private:
  void forget(std::uint64_t round) const;

  Store store_;
  int rank_;
  int size_;
};

}  // namespace lockstep::comm
