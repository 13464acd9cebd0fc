#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "lockstep/core/error.hpp"
#include "lockstep/train/accelerator.hpp"
#include "support/accelerators.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using testing::message_of;
using testing::run_accelerators;

TEST(MainProcessFirst, LocalMainProcessesOfTwoNodesDoNotWaitForEachOther) {
  testing::run_group(4, [&](const ProcessGroup& group) {
    World world;
    world.rank = group.rank();
    world.world_size = 4;
    world.local_rank = group.rank() % 2;
    world.local_world_size = 2;
    world.group_rank = group.rank() / 2;
    world.group_world_size = 2;
    Accelerator accelerator(world, group);
    // Node 0 stays in its scope until node 1 has finished: there would be a deadlock if node 1 waited for
    // node 0.
    const auto guard = accelerator.local_main_process_first();
    if (world.rank == 0) {
      const at::Tensor signal = at::zeros({1});
      group.recv(signal, 3);
    }
    if (world.rank == 3) group.send(at::ones({1}), 0);
  });
}

TEST(MainProcessFirst, AnExceptionOnTheMainProcessReachesEveryone) {
  std::atomic<int> heard{0};
  run_accelerators(3, [&](Accelerator& accelerator) {
    const auto fails = [&] {
      accelerator.main_process_first([&] {
        if (accelerator.is_main_process()) throw DataError("the file is cut off");
      });
    };
    if (accelerator.is_main_process()) {
      EXPECT_THROW(fails(), DataError);
    } else {
      const auto text = message_of<RemoteError>(fails);
      EXPECT_NE(text.find("because rank 0 failed in main_process_first #1: the file is cut off"),
                std::string::npos)
          << text;
      ++heard;
    }
    accelerator.wait_for_everyone();  // The job can continue.
  });
  EXPECT_EQ(heard.load(), 2);
}

TEST(MainProcessFirst, AnExceptionUnderTheGuardReachesEveryone) {
  std::atomic<int> heard{0};
  run_accelerators(2, [&](Accelerator& accelerator) {
    const auto fails = [&] {
      const auto guard = accelerator.main_process_first();
      if (accelerator.is_main_process()) throw DataError("unseen");
    };
    if (accelerator.is_main_process()) {
      EXPECT_THROW(fails(), DataError);
    } else {
      EXPECT_NE(message_of<RemoteError>(fails).find("left by an exception"), std::string::npos);
      ++heard;
    }
  });
  EXPECT_EQ(heard.load(), 1);
}

/// A training meets at each of its checkpoints: what it leaves in the job's store would be a leak.
TEST(MainProcessFirst, MainProcessesLeaveNothingInTheStore) {
  std::latch counted(1);  // Until then the others stay where they are.
  run_accelerators(3, [&](Accelerator& accelerator) {
    const Store store = accelerator.process_group().new_namespace();
    accelerator.wait_for_everyone();
    const auto before = store.c10d_store()->getNumKeys();
    for (int round = 0; round < 5; ++round) {
      accelerator.on_main_process([] {});
      accelerator.main_process_first([] {});
    }
    if (accelerator.is_main_process()) {
      EXPECT_EQ(store.c10d_store()->getNumKeys(), before);
      counted.count_down();
    }
    counted.wait();
  });
}

TEST(MainProcessFirst, ASlowMainProcessTimesNobodyOut) {
  testing::run_group(
      2,
      [&](const ProcessGroup& group) {
        World world;
        world.rank = world.local_rank = group.rank();
        world.world_size = world.local_world_size = 2;
        Accelerator accelerator(world, group);
        const auto guard = accelerator.main_process_first();
        if (accelerator.is_main_process()) std::this_thread::sleep_for(milliseconds(1500));
      },
      milliseconds(300));
}

}  // namespace
}  // namespace lockstep
