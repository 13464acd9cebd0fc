#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <random>
#include <thread>

#include "core/checksum.hpp"
#include "datasets/cache/cache_folder.hpp"
#include "support/temporary_folder.hpp"
#include "unit/datasets/map/numbers.hpp"

// Processes that are killed at random moments while they fill the cache. LOCKSTEP_KILLS says how often, for
// more than the usual 20: LOCKSTEP_KILLS=100 build/tests/kill_test

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using testing::TemporaryFolder;

int kills() {
  const char* given = ::getenv("LOCKSTEP_KILLS");
  return given == nullptr ? 20 : std::stoi(given);
}

/// Does `work` in a process of its own, which is killed after `limit`. Whether it had ended before.
bool run_killed(const std::function<void()>& work, std::chrono::microseconds limit) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      work();
    } catch (...) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  std::this_thread::sleep_for(limit);
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) || status == 0) << "it failed by itself: " << status;
  return !WIFSIGNALED(status);
}

/// Whatever calls itself complete is, to the last byte. How many do.
int check_entries(const fs::path& cache) {
  int complete = 0;
  for (const auto& entry : list_cache(cache)) {
    if (!entry.manifest.complete) continue;
    ++complete;
    EXPECT_EQ(entry.manifest.shards.size(), entry.manifest.shard_count);
    for (const auto& shard : entry.manifest.shards) {
      const auto digest = digest_of(entry.folder / shard.file_name());
      EXPECT_EQ(digest.bytes, shard.bytes) << shard.file_name();
      EXPECT_EQ(digest.crc32c, shard.crc32c) << shard.file_name();
    }
  }
  return complete;
}

/// Kills processes that do the work, looks at what they leave, and does it to the end: what comes out then is
/// what came out of undisturbed work. Every other one begins where the one before was killed.
void kill_again_and_again(const fs::path& cache, const std::function<std::string()>& work) {
  const auto begin = Clock::now();
  const std::string expected = work();
  const auto duration = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
  std::mt19937 random(7);
  std::uniform_int_distribution<std::int64_t> moment(0, duration.count());
  int killed = 0;
  fs::remove_all(cache);
  for (int round = 0; round < kills(); ++round) {
    const auto after = moment(random);
    SCOPED_TRACE("round " + std::to_string(round) + ", killed after " + std::to_string(after) + " us");
    killed += run_killed(work, std::chrono::microseconds(after)) ? 0 : 1;
    check_entries(cache);
    if (round % 2 == 0) continue;
    ASSERT_EQ(work(), expected);
    ASSERT_EQ(check_entries(cache), 1);
    for (const auto& each : fs::recursive_directory_iterator(cache))
      EXPECT_FALSE(each.path().filename().string().starts_with(".work-")) << each.path();
    fs::remove_all(cache);
  }
  EXPECT_GT(killed, kills() / 4) << "most had ended before they were killed: the test tested nothing";
}

std::string json_lines(int rows) {
  std::string text;
  for (int row = 0; row < rows; ++row) {
    text += "{\"id\": " + std::to_string(row) + ", \"text\": \"" + std::string(50 + row % 50, 'a') + "\"}\n";
  }
  return text;
}

TEST(Killed, IngestLeavesNoWrongEntry) {
  const TemporaryFolder folder;
  ::setenv("LOCKSTEP_CACHE", (folder / "cache").c_str(), 1);
  testing::write_bytes(folder / "a.jsonl", json_lines(200'000));
  kill_again_and_again(folder / "cache", [&] {
    const auto data = ArrowDataset::load(folder / "a.jsonl");
    return std::to_string(data.num_rows()) + " " + data.fingerprint();
  });
  ::unsetenv("LOCKSTEP_CACHE");
}

TEST(Killed, MapLeavesNoWrongEntry) {
  const TemporaryFolder cache;
  auto options = testing::options_in(cache);
  options.cache_folder = cache / "cache";
  options.num_proc = 2;
  options.shard_rows = 2'000;
  options.batch_size = 100;
  const auto source = testing::numbers(40'000);
  kill_again_and_again(options.cache_folder, [&] {
    const auto mapped = map(source, testing::squares, options);
    return std::to_string(mapped.num_rows()) + " " + mapped.fingerprint();
  });
}

}  // namespace
}  // namespace lockstep
