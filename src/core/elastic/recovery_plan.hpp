#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::elastic {

/// A generation is one membership of the world group. The first of a round is 1, and each recovery makes the
/// next. (A round is a start of all ranks, see launch/rendezvous/coordinator.hpp.)
using Generation = std::uint64_t;

/// One process of a rank. A replacement has the rank of the process that it replaces and the next number, so
/// that a late message of the old process is not taken for one of the new.
struct RankProcess {
  int rank = 0;
  /// Counts the processes of this rank, from 0.
  int process = 0;
  auto operator<=>(const RankProcess&) const = default;
};

/// "rank 1", or "rank 1 (process 2)" for its second process.
std::string describe(const RankProcess& process);

/// The training state that a process holds: everything that a checkpoint would contain.
struct HeldState {
  enum class Kind {
    none,   // It has not received the state yet, or only a part of it.
    clean,  // The state after `step` optimizer steps.
    torn,   // Between its first optimizer.step() and the commit of the step after `step`.
  };
  Kind kind = Kind::none;
  std::uint64_t step = 0;
  bool operator==(const HeldState&) const = default;
};

/// The next generation: who its members are, and how all of them get the same state. A plan is published once
/// and never changed. If it fails, another generation follows.
struct RecoveryPlan {
  Generation generation = 0;
  /// By rank.
  std::vector<RankProcess> members;
  /// The rank that sends its state to `receivers`; all others have the same already.
  int source = -1;
  /// Ascending.
  std::vector<int> receivers;
  /// How many optimizer steps the state contains: training goes on with step `step`, counted from 0. It may
  /// have been computed before, from the same samples and random numbers.
  std::uint64_t step = 0;
  bool operator==(const RecoveryPlan&) const = default;
};

}  // namespace lockstep::elastic
