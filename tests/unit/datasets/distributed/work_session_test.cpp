#include <gtest/gtest.h>

#include "datasets/distributed/run_once_per_node.hpp"
#include "datasets/distributed/shared_folder_group.hpp"
#include "datasets/map/code_id.hpp"
#include "datasets/map/map_key.hpp"
#include "doubling.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/world.hpp"
#include "net/socket.hpp"
#include "net/store/server.hpp"
#include "support/throws.hpp"
#include "threads_as_ranks.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::Doubling;
using testing::quick;
using testing::run_job;
using testing::shards_of;
using testing::TemporaryFolder;

const std::vector<std::string> kFourFine(4);

void take_a_moment(const ShardTask&, const Worker&) { std::this_thread::sleep_for(2ms); }

TEST(SharedFolderGroup, RanksOfOneFolderShareTheWork) {
  const TemporaryFolder cache, other;
  Doubling doubling(400, 10), alone(400, 10);
  doubling.before = take_a_moment;
  EXPECT_EQ(run_job(4,
                    [&](const DistributedContext& ranks) {
                      EXPECT_EQ(run_cached(doubling.work, ranks, quick(cache.path())),
                                cache / doubling.work.manifest.key);
                    }),
            kFourFine);
  EXPECT_EQ(doubling.computed, 40) << "each part once";
  EXPECT_GT(doubling.setups, 1);
  EXPECT_EQ(shards_of(cache / doubling.work.manifest.key),
            shards_of(run_cached(alone.work, {}, quick(other.path()))));
  EXPECT_EQ(cache.files().size(), 1U) << "nothing of the probe is left";
}

TEST(SharedFolderGroup, EachNodesOwnFolderGetsItsOwnCopy) {
  const TemporaryFolder nodes[2];
  Doubling doubling(200, 10);
  doubling.before = take_a_moment;
  EXPECT_EQ(run_job(4,
                    [&](const DistributedContext& ranks) {
                      run_cached(doubling.work, ranks, quick(nodes[ranks.node].path()));
                    }),
            kFourFine);
  EXPECT_EQ(doubling.computed, 40) << "twice 20 parts: once for each folder, not for each rank";
  EXPECT_EQ(shards_of(nodes[0] / doubling.work.manifest.key),
            shards_of(nodes[1] / doubling.work.manifest.key));
  for (const auto& node : nodes) EXPECT_EQ(node.files().size(), 1U);
}

TEST(SharedFolderGroup, AFinishedResultNeedsNoWork) {
  const TemporaryFolder cache;
  Doubling doubling(40, 10);
  run_cached(doubling.work, {}, quick(cache.path()));
  EXPECT_EQ(
      run_job(
          4, [&](const DistributedContext& ranks) { run_cached(doubling.work, ranks, quick(cache.path())); }),
      kFourFine);
  EXPECT_EQ(doubling.computed, 4);
}

TEST(SharedFolderGroup, SeveralMapsFollowEachOther) {
  const TemporaryFolder cache;
  Doubling first(40, 10, "aaaa"), second(60, 10, "bbbb");
  EXPECT_EQ(run_job(4,
                    [&](const DistributedContext& ranks) {
                      for (auto* each : {&first, &second, &first})
                        run_cached(each->work, ranks, quick(cache.path()));
                    }),
            kFourFine);
  EXPECT_EQ(first.computed, 4);
  EXPECT_EQ(second.computed, 6);
}

TEST(SharedFolderGroup, AFailureReachesAllRanksWithItsWords) {
  const TemporaryFolder cache;
  Doubling doubling(400, 10);
  doubling.before = [](const ShardTask& task, const Worker&) {
    if (task.number == 7) throw DataError("row 75: no such word");
    std::this_thread::sleep_for(50ms);
  };
  const auto outcomes = run_job(
      4, [&](const DistributedContext& ranks) { run_cached(doubling.work, ranks, quick(cache.path())); });
  int own = 0;
  for (const auto& outcome : outcomes) {
    EXPECT_NE(outcome.find("row 75: no such word"), std::string::npos) << outcome;
    own += outcome == "row 75: no such word" ? 1 : 0;
  }
  EXPECT_EQ(own, 1) << "the others name the rank";
}

TEST(WorkSession, ADeadRankIsNoticed) {
  const auto begin = std::chrono::steady_clock::now();
  const auto outcomes = run_job(2, [&](const DistributedContext& ranks) {
    const coordination::WaitTimes times{.message = 1h, .beat = 20ms, .dead_after = 300ms};
    WorkSession session(ranks, "map 'doubling'", times);
    // Rank 1 comes, beats and goes without a word.
    if (ranks.rank == 1) return std::this_thread::sleep_for(100ms);
    session.await("never", 1);
  });
  EXPECT_TRUE(testing::contains_all(outcomes[0], {"map 'doubling': rank 1 on host ", " is dead"}));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
}

/// Rank 1 comes, beats and goes without a word, while the others wait for all: once for each wait.
TEST(WorkSession, ADeadRankIsNoticedByThoseWhoWaitForAll) {
  const TemporaryFolder folder;
  const coordination::WaitTimes times{.message = 1h, .beat = 20ms, .dead_after = 300ms};
  const std::vector<std::function<void(const DistributedContext&)>> waits = {
      [&](const DistributedContext& ranks) {
        run_once_per_node(
            ranks, "stage 'x'", [](const auto&) { return std::string("copied"); }, times);
      },
      [&](const DistributedContext& ranks) {
        WorkSession session(ranks, "map 'doubling'", times);
        SharedFolderProbe probe(session, folder.path());
        probe.wait_for_all();
      }};
  for (const auto& wait : waits) {
    const auto outcomes = run_job(
        2,
        [&](const DistributedContext& ranks) {
          if (ranks.rank == 0) return wait(ranks);
          WorkSession session(ranks, "dying", times);
          std::this_thread::sleep_for(100ms);
        },
        1);
    EXPECT_TRUE(testing::contains_all(outcomes[0], {"rank 1 on host ", " is dead", "0 waiting for "}));
  }
}

/// The others must not compute to the end of their shards, which may take hours, before they hear of it.
TEST(SharedFolderGroup, ARankThatDiesWithinAShardEndsTheOthersWithinTheirs) {
  const TemporaryFolder cache;
  Doubling doubling(4, 1);
  std::atomic<int> stopped{0};
  doubling.work.start = [&](const Worker&) -> ShardFunction {
    return [&](const ShardTask&, const fs::path&, const std::atomic<bool>& stop) -> std::uint64_t {
      while (!stop) std::this_thread::sleep_for(5ms);
      ++stopped;
      throw Error("stopped");
    };
  };
  const auto outcomes = run_job(4, [&](const DistributedContext& ranks) {
    if (ranks.rank != 2) {
      run_cached(doubling.work, ranks, quick(cache.path()));
      return;
    }
    // Comes, beats, and goes without a word.
    WorkSession session(ranks, "map 'doubling'", quick(cache.path()).session);
    const SharedFolderProbe probe(session, cache.path());
    session.wait_until([&] { return session.store().contains(session.key("shared_folder/0/claim/2")); },
                       [] { return std::string("for the others to work"); },
                       [] { return std::vector<int>{}; });
  });
  EXPECT_EQ(stopped, 3) << "each in the midst of its shard";
  EXPECT_EQ(outcomes[2], "");
  for (const int rank : {0, 1, 3}) {
    EXPECT_TRUE(
        testing::contains_all(outcomes[static_cast<std::size_t>(rank)], {"rank 2 on host ", " is dead"}));
  }
  EXPECT_FALSE(live_lease(cache / doubling.work.manifest.key));
}

/// The launcher's store keeps the keys of the first map for as long as the job runs.
TEST(LauncherStore, RanksMeetAgainOverASecondConnection) {
  const TemporaryFolder cache;
  net::Server server(net::listen_on_loopback(0), {.secret = "s"});
  Doubling first(40, 10, "aaaa"), second(60, 10, "bbbb");
  const auto outcomes = run_job(2, [&](const DistributedContext& thread) {
    World world;
    world.rank = thread.rank;
    world.world_size = thread.size;
    world.local_rank = thread.rank;
    world.master_addr = "127.0.0.1";
    world.master_port = server.address().port();
    world.use_agent_store = true;
    world.job_token = "s";
    for (auto* each : {&first, &second})
      run_cached(each->work, distributed_context(world), quick(cache.path()));
  });
  EXPECT_EQ(outcomes, std::vector<std::string>(2));
  EXPECT_EQ(first.computed, 4);
  EXPECT_EQ(second.computed, 6);
}

TEST(WorkSession, ASlowRankIsWaitedFor) {
  EXPECT_EQ(run_job(2,
                    [&](const DistributedContext& ranks) {
                      // Far longer than a rank may be silent: it is late, not dead.
                      if (ranks.rank == 1) std::this_thread::sleep_for(700ms);
                      const coordination::WaitTimes times{.message = 1h, .beat = 20ms, .dead_after = 200ms};
                      WorkSession session(ranks, "map 'doubling'", times);
                      if (ranks.rank == 1) std::this_thread::sleep_for(700ms);
                      if (ranks.rank == 1) session.store().set(session.key("here"), "");
                      session.await("here", 1);
                      session.leave();
                    }),
            std::vector<std::string>(2));
}

TEST(BuildId, IsTheModules) {
  const std::string ours = build_id_of(reinterpret_cast<const void*>(&take_a_moment));
  EXPECT_GE(ours.size(), 16U);
  EXPECT_EQ(ours.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(ours, build_id_of(reinterpret_cast<const void*>(&run_job)));
  EXPECT_NE(ours, build_id_of(reinterpret_cast<const void*>(&std::fopen)));
  int on_the_stack = 0;
  EXPECT_THROWS(build_id_of(&on_the_stack), Error, "MapOptions::version");
}

}  // namespace
}  // namespace lockstep
