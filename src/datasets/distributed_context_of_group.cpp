#include <chrono>

#include "comm/group_key_value_store.hpp"
#include "comm/group_observer.hpp"
#include "lockstep/comm/process_group.hpp"
#include "lockstep/core/world.hpp"
#include "lockstep/datasets/distributed_context.hpp"

namespace lockstep {
namespace {

/// How long the store may take to answer about an existing key.
constexpr std::chrono::seconds kAnswer{60};

}  // namespace

DistributedContext distributed_context(const World& world, const ProcessGroup& group) {
  // The others have done this work: the result is in the cache, or computed once more.
  if (comm::is_newcomer(group)) return {.node = world.group_rank, .device = group.device().str()};
  DistributedContext ranks{.rank = group.rank(),
                           .size = group.size(),
                           .local_rank = world.local_rank,
                           .node = world.group_rank,
                           .device = group.device().str()};
  if (ranks.size > 1) ranks.store = comm::shared_key_value_store(group.new_namespace().clone(), kAnswer);
  return ranks;
}

}  // namespace lockstep
