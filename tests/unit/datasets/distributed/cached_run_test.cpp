#include "datasets/distributed/cached_run.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "datasets/cache/cache_folder.hpp"
#include "doubling.hpp"
#include "lockstep/core/error.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::Doubling;
using testing::quick;
using testing::shards_of;
using testing::TemporaryFolder;

/// Waits until `count` shards are in the entry.
void await_shards(const fs::path& entry, std::size_t count) {
  for (int tries = 0; tries < 3000 && finished_shards(entry).size() < count; ++tries)
    std::this_thread::sleep_for(10ms);
  ASSERT_GE(finished_shards(entry).size(), count);
}

TEST(ShardGrid, CoversTheRowsInWholeBatches) {
  for (const std::int64_t rows : {1, 999, 1000, 1001, 70'000, 10'000'000}) {
    for (const std::int64_t batch : {1, 12, 1000}) {
      const auto tasks = shard_grid(rows, batch, 0);
      std::int64_t next = 0;
      for (const auto& task : tasks) {
        EXPECT_EQ(task.first_row, next);
        EXPECT_EQ(task.first_row % batch, 0);
        EXPECT_GT(task.rows, 0);
        next += task.rows;
      }
      EXPECT_EQ(next, rows);
    }
  }
  EXPECT_TRUE(shard_grid(0, 1000, 0).empty());
  EXPECT_EQ(shard_grid(10'000, 1000, 0).size(), 10U);
  EXPECT_EQ(shard_grid(1'000'000, 1000, 0).size(), 63U) << "15,625 rows, rounded up to 16 batches";
  EXPECT_EQ(shard_grid(100, 12, 20).size(), 5U) << "20 rows, rounded up to 2 batches";
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t batch : {std::int64_t{12}, kMost}) {
    for (const std::int64_t shard : {std::int64_t{0}, std::int64_t{20}, kMost}) {
      if (batch != kMost && shard != kMost) continue;
      const auto tasks = shard_grid(100, batch, shard);
      ASSERT_EQ(tasks.size(), 1U) << "a batch or a shard of any size is one of all rows";
      EXPECT_EQ(tasks[0].rows, 100);
    }
  }
}

TEST(CachedRun, ComputesOnceAndThenFindsTheResult) {
  const TemporaryFolder cache;
  Doubling doubling(95, 10);
  const fs::path entry = run_cached(doubling.work, {}, quick(cache.path()));
  EXPECT_EQ(doubling.computed, 10);
  EXPECT_EQ(doubling.setups, 1);
  const auto manifest = read_manifest(entry);
  ASSERT_TRUE(manifest && manifest->complete);
  EXPECT_EQ(manifest->rows(), 95U);
  EXPECT_EQ(testing::read_bytes(entry / manifest->shards[9].file_name()), "180\n182\n184\n186\n188\n");
  EXPECT_EQ(run_cached(doubling.work, {}, quick(cache.path())), entry);
  EXPECT_EQ(doubling.computed, 10);
  EXPECT_EQ(fs::exists(entry / "lease.1"), false);
}

TEST(CachedRun, WorkersShareTheShards) {
  const TemporaryFolder one, four;
  Doubling doubling(400, 10), shared(400, 10);
  auto options = quick(four.path());
  options.threads = 4;
  options.devices = {"cuda:0", "cuda:1"};
  std::atomic<int> wrong{0};
  shared.before = [&](const ShardTask&, const Worker& worker) {
    const bool fits = worker.rank >= 0 && worker.rank < worker.count && worker.count == 4 &&
                      worker.device == (worker.rank % 2 == 0 ? "cuda:0" : "cuda:1");
    if (!fits) ++wrong;
    std::this_thread::sleep_for(1ms);
  };
  const auto alone = shards_of(run_cached(doubling.work, {}, quick(one.path())));
  EXPECT_EQ(shards_of(run_cached(shared.work, {}, options)), alone);
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(shared.setups, 4);
  EXPECT_EQ(shared.computed, 40);
}

TEST(CachedRun, AKilledProcessLosesOnlyWhatItHadNotFinished) {
  const TemporaryFolder cache;
  Doubling doubling(200, 10);
  const fs::path entry = cache.path() / doubling.work.manifest.key;
  const pid_t child = fork();
  if (child == 0) {
    doubling.before = [](const ShardTask&, const Worker&) { std::this_thread::sleep_for(50ms); };
    run_cached(doubling.work, {}, quick(cache.path()));
    _exit(0);
  }
  await_shards(entry, 4);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const auto finished = finished_shards(entry).size();
  ASSERT_LT(finished, 20U);
  EXPECT_FALSE(read_manifest(entry)->complete);
  run_cached(doubling.work, {}, quick(cache.path()));
  EXPECT_EQ(doubling.computed, 20 - static_cast<int>(finished));
  const TemporaryFolder other;
  EXPECT_EQ(shards_of(entry), shards_of(run_cached(doubling.work, {}, quick(other.path()))));
  for (const auto& each : fs::directory_iterator(entry))
    EXPECT_FALSE(each.path().filename().string().starts_with(".")) << each.path();
}

TEST(CachedRun, AnErrorLeavesTheFinishedShardsAndNothingElse) {
  const TemporaryFolder cache;
  Doubling doubling(100, 10);
  doubling.before = [](const ShardTask& task, const Worker&) {
    if (task.number == 3) throw DataError("row 35 is bad");
  };
  EXPECT_THROWS(run_cached(doubling.work, {}, quick(cache.path())), DataError, "row 35 is bad");
  const fs::path entry = cache.path() / doubling.work.manifest.key;
  EXPECT_EQ(finished_shards(entry).size(), 3U);
  EXPECT_FALSE(live_lease(entry));
  doubling.before = nullptr;
  doubling.computed = 0;
  run_cached(doubling.work, {}, quick(cache.path()));
  EXPECT_EQ(doubling.computed, 7);
}

TEST(CachedRun, AnErrorBeforeTheFirstShardLeavesNothing) {
  const TemporaryFolder cache;
  Doubling doubling(100, 100);
  auto options = quick(cache.path());
  options.mark = hold_entry;
  doubling.before = [](const ShardTask&, const Worker&) { throw DataError("row 35 is bad"); };
  EXPECT_THROWS(run_cached(doubling.work, {}, options), DataError, "row 35 is bad");
  EXPECT_TRUE(fs::is_empty(cache.path()));
}

/// Another process has taken over, because this one had been stopped for too long.
TEST(CachedRun, AnErrorLeavesTheEntryToTheHolderOfTheLease) {
  const TemporaryFolder cache;
  Doubling doubling(100, 100);
  const fs::path entry = cache.path() / doubling.work.manifest.key;
  doubling.before = [&](const ShardTask&, const Worker&) {
    testing::write_bytes(entry / "lease.2", "");
    std::this_thread::sleep_for(500ms);
    throw DataError("row 35 is bad");
  };
  EXPECT_THROW(run_cached(doubling.work, {}, quick(cache.path())), Error);
  EXPECT_TRUE(fs::exists(entry / "manifest.json"));
}

TEST(CachedRun, DamagedEntriesAreComputedAgain) {
  const TemporaryFolder cache;
  Doubling doubling(50, 10);
  const fs::path entry = run_cached(doubling.work, {}, quick(cache.path()));
  const auto whole = shards_of(entry);
  fs::resize_file(entry / whole.rbegin()->first, 1);
  run_cached(doubling.work, {}, quick(cache.path()));
  EXPECT_EQ(doubling.computed, 10);
  EXPECT_EQ(shards_of(entry), whole);
  testing::write_bytes(entry / "manifest.json", "{");
  run_cached(doubling.work, {}, quick(cache.path()));
  EXPECT_EQ(doubling.computed, 10) << "the shards were whole";
  EXPECT_TRUE(read_manifest(entry)->complete);
  auto options = quick(cache.path());
  options.load_from_cache = false;
  run_cached(doubling.work, {}, options);
  EXPECT_EQ(doubling.computed, 15);
}

/// A byte that has changed shows in no size.
TEST(CachedRun, ShardsAreCheckedAgainstTheirSums) {
  const TemporaryFolder cache;
  Doubling doubling(50, 10);
  const fs::path entry = run_cached(doubling.work, {}, quick(cache.path()));
  const auto whole = shards_of(entry);
  std::string bytes = whole.begin()->second;
  bytes[3] ^= 1;
  testing::write_bytes(entry / whole.begin()->first, bytes);
  ::testing::internal::CaptureStderr();
  run_cached(doubling.work, {}, quick(cache.path()));
  EXPECT_TRUE(testing::contains_all(::testing::internal::GetCapturedStderr(),
                                    {"map 'doubling'", whole.begin()->first, "is damaged"}));
  EXPECT_EQ(doubling.computed, 10);
  EXPECT_EQ(shards_of(entry), whole);
  // A copy is another file with the same bytes, and is read once.
  fs::copy(entry, cache / "copy", fs::copy_options::recursive);
  fs::remove_all(entry);
  fs::rename(cache / "copy", entry);
  const auto checked = testing::read_bytes(entry / "checked");
  run_cached(doubling.work, {}, quick(cache.path()));
  EXPECT_EQ(doubling.computed, 10);
  EXPECT_NE(testing::read_bytes(entry / "checked"), checked);
}

TEST(CachedRun, AnotherJobWaitsForTheOneThatComputes) {
  const TemporaryFolder cache;
  Doubling first(100, 10), second(100, 10);
  first.before = [](const ShardTask&, const Worker&) { std::this_thread::sleep_for(20ms); };
  std::thread job([&] { run_cached(first.work, {}, quick(cache.path())); });
  await_shards(cache.path() / first.work.manifest.key, 1);
  const fs::path entry = run_cached(second.work, {}, quick(cache.path()));
  job.join();
  EXPECT_EQ(first.computed, 10);
  EXPECT_EQ(second.computed, 0);
  EXPECT_TRUE(read_manifest(entry)->complete);
}

/// Those that wait do not have to get the lease one after another.
TEST(CachedRun, AResultThatIsCompleteIsTakenWithoutTheLease) {
  const TemporaryFolder cache, other;
  Doubling here(50, 10), there(50, 10);
  const fs::path made = run_cached(there.work, {}, quick(other.path()));
  const fs::path entry = cache.path() / here.work.manifest.key;
  auto options = quick(cache.path());
  const auto lease = LeaseAcquirer(entry, options.lease).try_take();
  ASSERT_TRUE(lease);
  std::thread waiting([&] { EXPECT_EQ(run_cached(here.work, {}, options), entry); });
  for (const auto& [name, bytes] : shards_of(made)) testing::write_bytes(entry / name, bytes);
  write_manifest(entry, *read_manifest(made));
  waiting.join();
  EXPECT_EQ(here.computed, 0);
}

/// The holder of the lease may just be writing the shard anew.
TEST(CachedRun, ADamagedShardIsRemovedByTheHolderOfTheLease) {
  const TemporaryFolder cache;
  Doubling doubling(50, 10);
  auto options = quick(cache.path());
  const fs::path entry = run_cached(doubling.work, {}, options);
  const auto [name, bytes] = *shards_of(entry).begin();
  const auto lease = LeaseAcquirer(entry, options.lease).try_take();
  ASSERT_TRUE(lease);
  testing::write_bytes(entry / name, std::string(bytes.size(), '?'));
  std::thread waiting([&] { run_cached(doubling.work, {}, options); });
  std::this_thread::sleep_for(200ms);
  EXPECT_TRUE(fs::exists(entry / name));
  testing::write_bytes(entry / name, bytes);
  waiting.join();
  EXPECT_EQ(doubling.computed, 5);
}

/// Left by a process that was killed while it aligned types.
TEST(CachedRun, AShardInTwoVersionsIsComputedAgain) {
  const TemporaryFolder cache;
  Doubling doubling(50, 10);
  const fs::path entry = run_cached(doubling.work, {}, quick(cache.path()));
  const auto whole = shards_of(entry);
  fs::remove(entry / "manifest.json");
  for (const auto& [number, shard] : finished_shards(entry)) {
    auto twin = shard;
    twin.crc32c ^= 1;
    testing::write_bytes(entry / twin.file_name(), "of another type");
  }
  run_cached(doubling.work, {}, quick(cache.path()));
  EXPECT_EQ(doubling.computed, 10);
  EXPECT_EQ(shards_of(entry), whole);
}

TEST(CachedRun, OlderEntriesGiveWayToTheLimit) {
  const TemporaryFolder cache;
  Doubling old(10, 10, "aaaa"), young(20, 10, "bbbb");
  old.padding = young.padding = 100'000;
  run_cached(old.work, {}, quick(cache.path()));
  auto options = quick(cache.path());
  options.limit = 250'000;
  run_cached(young.work, {}, options);
  EXPECT_EQ(cache.files(), std::vector<std::string>{"bbbb"});
}

/// The reader marks the entry before it looks at it, and the mark is there when it has it.
TEST(CachedRun, WhatIsFoundIsMarkedBeforeItIsLookedAt) {
  const TemporaryFolder cache;
  Doubling doubling(50, 10);
  std::optional<CacheUse> use;
  std::vector<bool> complete;
  auto options = quick(cache.path());
  options.mark = [&](const fs::path& entry) {
    const auto manifest = read_manifest(entry);
    complete.push_back(manifest && manifest->complete);
    use.emplace(entry);
  };
  for (int call = 0; call < 2; ++call) {
    run_cached(doubling.work, {}, options);
    EXPECT_TRUE(list_cache(cache.path()).front().read);
    use.reset();
  }
  EXPECT_EQ(complete, (std::vector<bool>{false, false, true}))
      << "before and in the first call, and in the second";
}

TEST(CachedRun, AFolderThatCannotBeMadeIsNamed) {
  const TemporaryFolder folder;
  testing::write_bytes(folder / "file", "");
  Doubling doubling(10, 10);
  EXPECT_THROWS(run_cached(doubling.work, {}, quick(folder / "file")), Error, (folder / "file").string());
  EXPECT_EQ(doubling.computed, 0);
}

/// A disk of its own of 1 MiB. Needs root, which the tests of the hosts need too.
class SmallDisk {
 public:
  SmallDisk() : mounted_(mount("none", folder_.path().c_str(), "tmpfs", 0, "size=1m") == 0) {}
  ~SmallDisk() {
    if (mounted_) umount2(folder_.path().c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  const fs::path& path() const { return folder_.path(); }
  void make_read_only() const {
    ASSERT_EQ(mount(nullptr, path().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, "size=1m"), 0);
  }

 private:
  TemporaryFolder folder_;
  bool mounted_;
};

TEST(CachedRun, TheRoomIsCheckedAfterTheFirstShard) {
  const SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "only root can make a small disk";
  Doubling doubling(100, 10);
  doubling.padding = 200'000;
  EXPECT_THROWS(run_cached(doubling.work, {}, quick(disk.path())), Error, "needs about 1800",
                "lockstep cache clear", "has only", disk.path().string());
  EXPECT_LE(doubling.computed, 2);
}

TEST(CachedRun, AFullDiskLeavesNothingHalfWritten) {
  const SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "only root can make a small disk";
  Doubling doubling(30, 10);
  doubling.before = [&](const ShardTask& task, const Worker&) {
    // The first shard promises less than the others need.
    doubling.padding = task.number == 0 ? 0 : 2'000'000;
  };
  EXPECT_THROW(run_cached(doubling.work, {}, quick(disk.path())), std::exception);
  const fs::path entry = disk.path() / doubling.work.manifest.key;
  for (const auto& each : fs::directory_iterator(entry))
    EXPECT_FALSE(each.path().filename().string().starts_with(".")) << each.path();
  EXPECT_EQ(finished_shards(entry).size(), 1U);
}

TEST(CachedRun, AReadOnlyCacheServesWhatItHas) {
  const SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "only root can make a small disk";
  Doubling here(10, 10, "aaaa"), missing(10, 10, "bbbb");
  run_cached(here.work, {}, quick(disk.path()));
  disk.make_read_only();
  EXPECT_EQ(run_cached(here.work, {}, quick(disk.path())), disk.path() / "aaaa");
  EXPECT_EQ(here.computed, 1);
  EXPECT_THROWS(run_cached(missing.work, {}, quick(disk.path())), Error, "Read-only file system");
}

}  // namespace
}  // namespace lockstep
