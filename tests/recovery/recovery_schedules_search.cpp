#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <unordered_set>

#include "recovery/recovery_schedules.hpp"

namespace lockstep::elastic {
namespace {

struct Key {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  bool operator==(const Key&) const = default;
};

struct HashKey {
  std::size_t operator()(const Key& key) const { return key.low; }
};

struct Visit {
  World world;
  int faults_left = 0;
  std::vector<Choice> faults;
  /// Its last choice, as an index of the list of all that were made.
  std::int64_t step = -1;
};

struct Step {
  std::int64_t before = -1;
  Choice choice;
};

}  // namespace

/// Depth first. States are told apart by 128 bits of their key's hash, together with the faults that are
/// left.
ExhaustiveCounts explore(const WorldOptions& options, int faults, const std::vector<Choice::Kind>& kinds) {
  ExhaustiveCounts counts;
  std::unordered_set<Key, HashKey> seen;
  std::vector<Visit> open{{World(options), faults, {}}};
  std::vector<Step> steps;
  const auto fail = [&](const Visit& visit, const Violation& violation) {
    counts.violation = fmt::format("{}: {}\n", violation.invariant, violation.details);
    std::string path;
    for (auto step = visit.step; step >= 0; step = steps[static_cast<std::size_t>(step)].before)
      path = steps[static_cast<std::size_t>(step)].choice.describe() + ", " + path;
    counts.violation += path;
  };
  while (!open.empty() && counts.violation.empty()) {
    Visit visit = std::move(open.back());
    open.pop_back();
    const std::string text = fmt::format("{} {}", visit.faults_left, visit.world.key());
    const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
    if (!seen.insert({hash.low64, hash.high64}).second) continue;
    ++counts.states;
    if (visit.world.is_over()) {
      ++(visit.world.has_succeeded()          ? counts.succeeded
         : visit.world.has_confirmed_finish() ? counts.failed_afterwards
                                              : counts.given_up);
      if (const auto violation = check_end(visit.world, options, visit.faults)) fail(visit, *violation);
      continue;
    }
    bool goes_on = false;
    for (const Choice& choice : visit.world.choices()) {
      if (choice.is_fault() && (visit.faults_left == 0 || std::ranges::count(kinds, choice.kind) == 0))
        continue;
      goes_on = goes_on || !choice.is_fault();
      ++counts.transitions;
      Visit next = visit;
      next.step = static_cast<std::int64_t>(steps.size());
      steps.push_back({visit.step, choice});
      if (choice.is_fault()) {
        --next.faults_left;
        next.faults.push_back(choice);
      }
      next.world.apply(choice);
      if (next.world.violation()) {
        fail(next, *next.world.violation());
        break;
      }
      open.push_back(std::move(next));
    }
    if (!goes_on && counts.violation.empty()) fail(visit, {"stuck", visit.world.describe()});
  }
  return counts;
}

}  // namespace lockstep::elastic
