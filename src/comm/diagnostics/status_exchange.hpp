#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "comm/diagnostics/peer_status.hpp"
#include "coordination/key_value_store.hpp"
#include "lockstep/comm/store.hpp"

namespace lockstep::comm {

/// The keys of the store through which ranks ask and answer. A question is a round; every rank answers each
/// round once, and round numbers are the same on all ranks. Throws as Store does. One thread at a time.
class StatusExchange {
 public:
  using Milliseconds = std::chrono::milliseconds;

  StatusExchange(const Store& store, int rank, int size);

  /// Begins a round: ends every rank's wait for it. A single request, whatever the number of ranks.
  void begin(std::uint64_t round) const;

  /// Waits until a round begins; returns false if `limit` passes first.
  bool await(std::uint64_t round, Milliseconds limit) const;

  /// Ends this rank's own wait for a round that has not begun.
  void wake_self(std::uint64_t round) const;

  void answer(std::uint64_t round, const RankReport& report) const;

  /// Waits for the answers of all ranks; returns false if `limit` passes first.
  bool await_answers(std::uint64_t round, Milliseconds limit) const;

  /// The answers so far.
  std::map<int, RankReport> answers(std::uint64_t round) const;

  void depart(const std::string& how) const;

  std::map<int, std::string> departed() const;

 private:
  std::shared_ptr<KeyValueStore> store_;
  int rank_;
  int size_;
};

}  // namespace lockstep::comm
