#include "recovery/recovery_schedules.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::elastic {
namespace {

using Kind = Choice::Kind;

/// A round is a few hundred events. One that has many more goes round in circles.
constexpr int kMostEvents = 20'000;

bool has_kind(const std::vector<Choice>& choices, Kind kind) {
  return std::ranges::find(choices, kind, &Choice::kind) != choices.end();
}

std::string describe_path(const std::vector<Choice>& path) {
  std::string text;
  for (const Choice& choice : path) text += choice.describe() + ", ";
  return text;
}

}  // namespace

std::string ScheduleCounts::describe() const {
  return fmt::format(
      "{} schedules, {} events, {} faults, {} recoveries ({} spares called), {} restarts; {} succeeded, {} "
      "gave up",
      schedules, events, faults, recoveries, called, restarts, succeeded, given_up);
}

WorldOptions world_of(std::mt19937_64& random) {
  const auto below = [&](std::uint64_t limit) { return random() % limit; };
  WorldOptions options;
  options.nodes.assign(2 + below(3), 0);
  if (below(2) == 0) options.nodes.back() = 1;
  options.steps = 3 + below(4);
  options.objects = 1 + static_cast<int>(below(2));
  options.reduces_before_commit = below(4) == 0;
  options.stages_transfers = below(4) != 0;
  options.checkpoint_every = below(3);
  options.recovery.spares = static_cast<int>(below(3));
  options.spare_nodes = static_cast<int>(below(3));
  if (below(8) == 0) options.recovery.max_recoveries = 1 + static_cast<int>(below(2));
  return options;
}

Choice choose(const std::vector<Choice>& choices, int faults_left, double fault_rate,
              std::mt19937_64& random) {
  const bool fault = faults_left > 0 && static_cast<double>(random() >> 11) * 0x1p-53 < fault_rate;
  std::vector<Choice> eligible;
  for (const Choice& choice : choices) {
    if (choice.is_fault() == fault) eligible.push_back(choice);
  }
  if (eligible.empty() && fault) return choose(choices, 0, fault_rate, random);
  if (eligible.empty()) return {.kind = Kind::run, .index = -1};
  return eligible[random() % eligible.size()];
}

std::optional<Violation> check_end(const World& world, const WorldOptions& options,
                                   const std::vector<Choice>& faults) {
  if (has_kind(faults, Kind::hurry) || has_kind(faults, Kind::stick)) return std::nullopt;
  if (std::ranges::count(faults, Kind::lose_node, &Choice::kind) > options.spare_nodes) return std::nullopt;
  // The processes of a node that leaves are lost one by one.
  const auto drained = std::ranges::count(faults, Kind::drain_node, &Choice::kind);
  if (drained > 0 && (faults.size() > 1 || options.nodes.back() == 0)) return std::nullopt;
  const auto losses = world.lost_with_nodes() + std::ranges::count_if(faults, [](const Choice& choice) {
                        return choice.kind != Kind::glitch && choice.kind != Kind::lose_node &&
                               choice.kind != Kind::drain_node;
                      });
  // The third loss without a new step ends the training.
  if (static_cast<int>(faults.size()) > std::min(2, options.recovery.max_recoveries)) return std::nullopt;
  if (losses >= static_cast<std::ptrdiff_t>(options.nodes.size())) return std::nullopt;
  if (!options.stages_transfers || options.reduces_before_commit) return std::nullopt;
  if (!world.has_succeeded() && !world.has_confirmed_finish())
    return Violation{"needless", "given up although a rank remained: " + world.verdict().value_or("")};
  return std::nullopt;
}

ScheduleCounts run_rounds(std::uint64_t first, std::uint64_t schedules) {
  ScheduleCounts counts;
  for (std::uint64_t seed = first; seed < first + schedules && counts.violation.empty(); ++seed) {
    std::mt19937_64 random(seed);
    const WorldOptions options = world_of(random);
    int faults_left = static_cast<int>(random() % 5);
    const double fault_rate = random() % 2 == 0 ? 0.02 : 0.2;
    World world(options);
    std::vector<Choice> path, faults;
    std::optional<Violation> violation;
    while (!world.is_over() && !violation) {
      const Choice choice = choose(world.choices(), faults_left, fault_rate, random);
      if (choice.index < 0 || path.size() == kMostEvents) {
        violation = Violation{"stuck", world.describe()};
        break;
      }
      path.push_back(choice);
      if (choice.is_fault()) {
        faults.push_back(choice);
        --faults_left;
      }
      world.apply(choice);
      violation = world.violation();
    }
    if (!violation) violation = check_end(world, options, faults);
    ++counts.schedules;
    counts.events += path.size();
    counts.faults += faults.size();
    counts.recoveries += static_cast<std::uint64_t>(world.planner().recoveries());
    counts.called += static_cast<std::uint64_t>(world.called());
    counts.succeeded += world.has_succeeded() ? 1 : 0;
    counts.given_up += world.verdict() ? 1 : 0;
    if (violation)
      counts.violation = fmt::format("seed {}: {}: {}\n{}", seed, violation->invariant, violation->details,
                                     describe_path(path));
  }
  return counts;
}

}  // namespace lockstep::elastic
