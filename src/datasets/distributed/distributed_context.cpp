#include "lockstep/datasets/distributed_context.hpp"

#include "coordination/launcher_store.hpp"
#include "core/elastic/recovery_messages.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/world.hpp"

namespace lockstep {

DistributedContext distributed_context(const World& world) {
  DistributedContext ranks{
      .rank = world.rank, .size = world.world_size, .local_rank = world.local_rank, .node = world.group_rank};
  if (ranks.alone()) return ranks;
  if (find_variable(process_environment(), elastic::kReplacesVariable)) return {.node = world.group_rank};
  if (!world.use_agent_store) {
    throw UsageError(
        "distributed_context: no launcher hosts this job's store (TORCHELASTIC_USE_AGENT_STORE). Start it "
        "with "
        "'lockstep run', or give the ranks of a process group.");
  }
  ranks.store = connect_to_launcher_store(world);
  return ranks;
}

std::vector<Worker> make_workers(const DistributedContext& ranks, int threads,
                                 const std::vector<std::string>& devices) {
  std::vector<Worker> workers;
  for (int thread = 0; thread < threads; ++thread) {
    const auto turn = static_cast<std::size_t>(thread);
    workers.push_back({.rank = ranks.rank * threads + thread,
                       .count = ranks.size * threads,
                       .device = devices.empty() ? ranks.device : devices[turn % devices.size()],
                       .process = ranks.rank});
  }
  return workers;
}

}  // namespace lockstep
