#pragma once

#include <functional>

#include "lockstep/train/accelerator.hpp"
#include "support/ranks.hpp"

namespace lockstep::testing {

/// Threads as ranks, all on one node.
inline void run_accelerators(int size, const std::function<void(Accelerator&)>& body,
                             const AcceleratorOptions& options = {}) {
  run_group(size, [&](const ProcessGroup& group) {
    World world;
    world.rank = world.local_rank = group.rank();
    world.world_size = world.local_world_size = group.size();
    Accelerator accelerator(world, group, options);
    body(accelerator);
  });
}

}  // namespace lockstep::testing
