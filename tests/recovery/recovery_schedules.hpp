#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "recovery/recovery_world.hpp"

namespace lockstep::elastic {

/// What a number of schedules came to.
struct ScheduleCounts {
  std::uint64_t schedules = 0;
  std::uint64_t events = 0;
  std::uint64_t faults = 0;
  std::uint64_t recoveries = 0;
  std::uint64_t succeeded = 0;
  std::uint64_t given_up = 0;
  /// Lost processes whose place a spare took.
  std::uint64_t called = 0;
  /// Rounds of the coordinator beyond the first.
  std::uint64_t restarts = 0;
  /// The first violation with its seed and everything that happened; empty: there was none.
  std::string violation;
  std::string describe() const;
};

/// The world of a seed: 2 to 4 ranks on 1 or 2 nodes, up to 2 nodes that wait, with or without checkpoints,
/// staging and torn states.
WorldOptions world_of(std::mt19937_64& random);

/// The next choice: most often what goes on by itself, and a fault with the given probability while some are
/// left.
Choice choose(const std::vector<Choice>& choices, int faults_left, double fault_rate,
              std::mt19937_64& random);

/// Whether those faults alone must not end a round: each costs one rank at most, and one remains.
std::optional<Violation> check_end(const World& world, const WorldOptions& options,
                                   const std::vector<Choice>& faults);

/// Random schedules of one round each, of the seeds from `first` on. Ends at the first violation.
ScheduleCounts run_rounds(std::uint64_t first, std::uint64_t schedules);

/// The same with the real Coordinator, nodes that leave and join, restarts, and rounds that follow one
/// another.
ScheduleCounts run_jobs(std::uint64_t first, std::uint64_t schedules);

struct ExhaustiveCounts {
  std::uint64_t states = 0;
  std::uint64_t transitions = 0;
  /// States in which the round is over, by how it ended.
  std::uint64_t succeeded = 0;
  std::uint64_t given_up = 0;
  /// A rank died after all had finished their training.
  std::uint64_t failed_afterwards = 0;
  /// The first violation with the path that leads to it; empty: there was none.
  std::string violation;
};

/// All interleavings of that world with at most so many faults of these kinds. Equal states are visited once.
ExhaustiveCounts explore(const WorldOptions& options, int faults, const std::vector<Choice::Kind>& kinds);

}  // namespace lockstep::elastic
