#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "comm/transport/gloo_connection.hpp"

namespace lockstep::comm {

/// Compares what the ranks of a connection of Gloo are about to do, over its own connections and before data
/// moves: for two ranks in the time that one message takes. Each rank sends what it knows 1, 2, 4, ... ranks
/// on, so that after the last of these rounds it knows of all, and all find the same two that differ. One
/// thread at a time.
class FingerprintExchange {
 public:
  /// How messages name this rank, and each rank of the backend.
  struct Names {
    std::string who;
    std::vector<std::string> callers;
  };

  /// `gloo` must outlive it, and carry no messages with tags from kFirstTag on but its own.
  FingerprintExchange(GlooConnection& gloo, Names names);
  /// Waits a moment for what it has said last to go out.
  ~FingerprintExchange();
  FingerprintExchange(const FingerprintExchange&) = delete;
  FingerprintExchange& operator=(const FingerprintExchange&) = delete;

  using Milliseconds = std::chrono::milliseconds;

  /// Says what this rank is about to call, "all_reduce #412 (float32, 1000 elements, sum)". The number is for
  /// people, and not compared: a rank whose start has failed by its arguments has counted it. Waits for
  /// nobody but whoever has not taken the announcement before.
  void announce(const std::string& call, Milliseconds timeout = Milliseconds(0));

  /// Waits until all ranks have announced the same. Throws CommunicationError on all of them when they have
  /// not, and what Gloo throws when one does not come in time; each later call throws the same again.
  /// `timeout`: else that of the connection.
  void agree(Milliseconds timeout = Milliseconds(0));

  static constexpr int kFirstTag = 0x7fffff00;

 private:
  /// What a rank calls. Of fixed size, because Gloo's receivers must know it.
  struct CollectiveFingerprint {
    std::int32_t caller = -1;
    std::array<char, 188> call{};

    bool operator!=(const CollectiveFingerprint& other) const;
  };
  /// Of the ranks that this one has heard of: what the first one calls, and the first of those that differ.
  struct Known {
    CollectiveFingerprint first;
    CollectiveFingerprint other;
  };
  using WorkPointer = c10::intrusive_ptr<c10d::Work>;
  struct Expected {
    Known known{};
    WorkPointer hearing{};
  };
  struct Round {
    int to;
    int from;
    int tag;
    Known sent{};
    WorkPointer sending{};
    std::array<Expected, 8> expected{};
    std::size_t heard = 0;  // Of the expected ones.
  };

  static Known merged(const Known& one, const Known& another);
  void send(Round& round, Milliseconds timeout);
  void hear(Round& round, Milliseconds timeout);
  void expect(Round& round);
  [[noreturn]] void refuse(Milliseconds timeout);
  template <class Body>
  void guarded(const Body& body);

  GlooConnection& gloo_;
  Names names_;
  std::deque<Round> rounds_;  // Gloo writes into them: they stay where they are.
  Known known_;
  std::exception_ptr broken_;
};

}  // namespace lockstep::comm
