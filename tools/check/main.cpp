// What `lockstep run --check` starts as every rank of the job: can all ranks talk to each other, do they
// compute right sums, and how fast?
#include <iostream>
#include <nlohmann/json.hpp>

#include "collectives.hpp"
#include "links.hpp"
#include "lockstep/comm/store.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "lockstep/train/accelerator.hpp"
#include "reach.hpp"

namespace {

using namespace lockstep;

constexpr std::chrono::seconds kTimeout{60};

void say(const World& world, const std::string& text) {
  if (world.is_main_process()) std::cout << text << std::flush;
}

void check_reach(const World& world, const Store& store) {
  const auto failures = check::unreachable_pairs(world, store.with_prefix("check"));
  for (const auto& line : failures) say(world, line + "\n");
  if (failures.empty()) {
    const int pairs = world.world_size * (world.world_size - 1);
    return say(world, "reach: all " + std::to_string(pairs) + " connections between ranks can be made\n");
  }
  throw CommunicationError(
      failures.front() +
      (failures.size() == 1 ? "" : ", and " + std::to_string(failures.size() - 1) + " more") +
      ". Look at firewalls and routes between these hosts");
}

int run() {
  const World world = World::from_environment();
  if (world.world_size == 1)
    throw UsageError("a check needs two ranks or more: give --nproc-per-node or --nnodes");
  const Store store = Store::connect(world, kTimeout);
  say(world, "check: " + std::to_string(world.world_size) + " ranks on " +
                 std::to_string(world.group_world_size) + " node(s)\n");
  check_reach(world, store);
  const ProcessGroup group(
      world.rank, world.world_size, store,
      {.device = choose_device("auto", world.local_rank), .timeout = kTimeout, .join_timeout = kTimeout});
  std::vector<int> nodes;
  for (const auto& node : group.all_gather_object(nlohmann::json(world.group_rank)))
    nodes.push_back(node.get<int>());
  say(world, check::check_collectives(group));
  say(world, check::links_text(check::measure_links(group, nodes)));
  say(world, "check: passed\n");
  group.barrier();
  return 0;
}

}  // namespace

int main() { return run_program("lockstep-check", run); }
