#include <cstdio>

#include <lockstep/core/error.hpp>
#include <lockstep/core/world.hpp>

/// Says which process of the job this is. Started alone it is a job of one.
int main() {
  try {
    const auto world = lockstep::World::from_environment();
    std::printf("rank %d of %d\n", world.rank, world.world_size);
    return 0;
  } catch (const lockstep::UsageError& error) {
    std::fprintf(stderr, "custom_trainer: %s\n", error.what());
    return 2;
  }
}
