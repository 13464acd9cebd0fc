// What `lockstep run --check` starts as every rank of the job: can all ranks talk to each other, do they
// compute right sums, and how fast?
#include <fmt/core.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "bench/collectives.hpp"
#include "checks.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "lockstep/train/accelerator.hpp"

namespace {

using namespace lockstep;

constexpr std::chrono::seconds kTimeout{60};

struct Measured {
  const char* collective;
  const char* size;
  std::int64_t bytes;
  int rounds;
};
constexpr Measured kMeasured[] = {
    {"barrier", "", 0, 20},
    {"all_reduce", "4 B", 4, 50},
    {"all_reduce", "4 KiB", 4 << 10, 50},
    {"all_reduce", "256 KiB", 256 << 10, 20},
    {"all_reduce", "4 MiB", 4 << 20, 8},
    {"all_reduce", "32 MiB", 32 << 20, 3},
};

void say(const World& world, const std::string& text) {
  if (world.is_main_process()) std::cout << text << std::flush;
}

void check_reach(const World& world, const Store& store) {
  const auto failures = check::unreachable_pairs(world, store.with_prefix("check"));
  for (const auto& line : failures) say(world, line + "\n");
  if (failures.empty()) {
    const int pairs = world.world_size * (world.world_size - 1);
    return say(world, fmt::format("reach: all {} connections between ranks can be made\n", pairs));
  }
  const std::string more = failures.size() == 1 ? "" : fmt::format(", and {} more", failures.size() - 1);
  throw CommunicationError(
      fmt::format("{}{}. Look at firewalls and routes between these hosts", failures.front(), more));
}

void check_collectives(const World& world, const ProcessGroup& group) {
  constexpr const char* kRow = "  {:>10}  {:>7}  {:>8}  {:>9}  {:>6}\n";
  say(world, fmt::format(kRow, "operation", "size", "time", "bandwidth", "result"));
  for (const auto& [collective, size, bytes, rounds] : kMeasured) {
    bench::Options options;
    options.iterations = rounds;
    options.warmup = 1;
    const auto found = bench::measure(collective, group, options, bytes);
    bench::require_right(found, group.rank());
    const std::string bandwidth = bytes == 0 ? "" : check::bandwidth_text(found.algorithm_bandwidth);
    say(world, fmt::format(kRow, collective, size, check::time_text(found.seconds), bandwidth, "ok"));
  }
}

int run() {
  const World world = World::from_environment();
  if (world.world_size == 1)
    throw UsageError("a check needs two ranks or more: give --nproc-per-node or --nnodes");
  const Store store = Store::connect(world, kTimeout);
  say(world, fmt::format("check: {} ranks on {} node(s)\n", world.world_size, world.group_world_size));
  check_reach(world, store);
  const ProcessGroup group(
      world.rank, world.world_size, store,
      {.device = choose_device("auto", world.local_rank), .timeout = kTimeout, .join_timeout = kTimeout});
  std::vector<int> nodes;
  for (const auto& node : group.all_gather_object(nlohmann::json(world.group_rank)))
    nodes.push_back(node.get<int>());
  check_collectives(world, group);
  say(world, check::link_table(group, nodes));
  say(world, "check: passed\n");
  group.barrier();
  return 0;
}

}  // namespace

int main() { return run_program("lockstep-check", run); }
