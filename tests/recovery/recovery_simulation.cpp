// More of what recovery_simulation_test.cpp runs:
//   recovery_simulation rounds|jobs SCHEDULES [FIRST_SEED]
//   recovery_simulation explore FAULTS STEPS RANKS [SPARES] [NODES THAT WAIT]
// A violation is printed with its seed and everything that happened; the exit status is then 1.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "recovery/recovery_schedules.hpp"

namespace lockstep::elastic {
namespace {

std::string explore_world(int faults, std::uint64_t steps, int ranks, int spares, int nodes) {
  WorldOptions options;
  options.steps = steps;
  options.nodes.assign(static_cast<std::size_t>(ranks), 0);
  options.nodes.back() = 1;
  options.joins_local_steps = true;
  options.recovery.spares = spares;
  options.spare_nodes = nodes;
  std::vector<Choice::Kind> kinds{Choice::Kind::crash, Choice::Kind::pause, Choice::Kind::glitch};
  if (nodes > 0) kinds.insert(kinds.end(), {Choice::Kind::lose_node, Choice::Kind::drain_node});
  const auto counts = explore(options, faults, kinds);
  std::printf(
      "%d ranks on 2 nodes, %d spares on each, %d nodes wait, %llu steps, %d faults: %llu states, %llu "
      "transitions; ends: %llu succeeded, %llu gave up\n",
      ranks, spares, nodes, static_cast<unsigned long long>(steps), faults,
      static_cast<unsigned long long>(counts.states), static_cast<unsigned long long>(counts.transitions),
      static_cast<unsigned long long>(counts.succeeded), static_cast<unsigned long long>(counts.given_up));
  return counts.violation;
}

std::string run_schedules(bool jobs, std::uint64_t schedules, std::uint64_t first) {
  const ScheduleCounts counts = jobs ? run_jobs(first, schedules) : run_rounds(first, schedules);
  std::printf("%s\n", counts.describe().c_str());
  return counts.violation;
}

}  // namespace
}  // namespace lockstep::elastic

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const auto number = [&](int index, unsigned long long otherwise) {
    return argc > index ? std::strtoull(argv[index], nullptr, 10) : otherwise;
  };
  if (what != "rounds" && what != "jobs" && what != "explore") {
    std::fprintf(stderr,
                 "usage: recovery_simulation rounds|jobs SCHEDULES [FIRST_SEED]\n"
                 "       recovery_simulation explore FAULTS STEPS RANKS [SPARES] [NODES THAT WAIT]\n");
    return 2;
  }
  const auto begin = std::chrono::steady_clock::now();
  const std::string violation =
      what == "explore"
          ? lockstep::elastic::explore_world(static_cast<int>(number(2, 2)), number(3, 3),
                                             static_cast<int>(number(4, 3)), static_cast<int>(number(5, 0)),
                                             static_cast<int>(number(6, 0)))
          : lockstep::elastic::run_schedules(what == "jobs", number(2, 1'000'000), number(3, 1));
  std::printf("%.1f s\n", std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  if (!violation.empty()) std::printf("%s\n", violation.c_str());
  return violation.empty() ? 0 : 1;
}
