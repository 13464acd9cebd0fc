// Map on the ranks of real jobs: the same result, failures, kills, and preparation.
#include <csignal>
#include <filesystem>
#include <map>

#include "core/lease.hpp"
#include "datasets/cache/cache_entry.hpp"
#include "job.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using launch::eventually;

/// A file of rows with a column 'text'.
std::string write_rows(const TemporaryFolder& folder, int rows) {
  std::string text = "text\n";
  for (int row = 0; row < rows; ++row) text += "the text of row " + std::to_string(row) + "\n";
  write_bytes(folder / "rows.csv", text);
  return folder / "rows.csv";
}

Words probe(const std::string& file, const Words& flags = {}) {
  Words words{LOCKSTEP_MAP_PROBE, file};
  words.insert(words.end(), flags.begin(), flags.end());
  return words;
}

Environment cache_in(const TemporaryFolder& folder, const std::string& name) {
  return {{"LOCKSTEP_CACHE", folder / name}};
}

/// The bytes of the only entry's shards, by name.
std::map<std::string, std::string> shards_in(const fs::path& cache) {
  std::map<std::string, std::string> shards;
  for (const auto& entry : fs::directory_iterator(cache)) {
    for (const auto& [number, shard] : finished_shards(entry.path()))
      shards[shard.file_name()] = read_bytes(entry.path() / shard.file_name());
  }
  return shards;
}

/// The sum over the ranks.
int batches_computed(const std::string& out) {
  int sum = 0;
  for (const auto& line : lines_of(out)) {
    const auto at = line.find(" computed ");
    if (at != std::string::npos) sum += std::atoi(line.c_str() + at + 10);
  }
  return sum;
}

TEST(MapByRanks, IsTheResultOfOneProcessByteForByte) {
  const TemporaryFolder folder;
  const std::string file = write_rows(folder, 500);
  const auto one = run_job(probe(file, {"--num-proc", "1"}), 1, {}, cache_in(folder, "one"));
  ASSERT_EQ(one.status, 0) << one.err;
  const auto four = run_job(probe(file, {"--pause", "5"}), 4, {}, cache_in(folder, "four"));
  ASSERT_EQ(four.status, 0) << four.err;
  EXPECT_EQ(batches_computed(four.out), 50) << four.out;
  EXPECT_EQ(count_lines_with(four.out, " has 500 rows "), 4) << four.out;
  EXPECT_EQ(shards_in(folder / "four"), shards_in(folder / "one"));
  EXPECT_EQ(shards_in(folder / "one").size(), 25U);
  const auto again = run_job(probe(file), 4, {}, cache_in(folder, "four"));
  EXPECT_EQ(batches_computed(again.out), 0);
  EXPECT_EQ(count_lines_with(again.out, " has 500 rows "), 4);
}

TEST(MapByRanks, AFailureIsNamedWithItsRow) {
  const TemporaryFolder folder;
  const std::string file = write_rows(folder, 400);
  const auto job =
      run_job(probe(file, {"--fail-at", "217", "--pause", "2"}), 4, {}, cache_in(folder, "cache"));
  EXPECT_NE(job.status, 0);
  EXPECT_GE(count_lines_with(job.err, "map 'probe', rows 210 to 219 (worker "), 1) << job.err;
  EXPECT_GE(count_lines_with(job.err, "no such word"), 1) << job.err;
  EXPECT_EQ(count_lines_with(job.err, "FAILED: rank "), 1) << job.err;
}

TEST(MapByRanks, AKilledJobResumesWithTheMissingShards) {
  const TemporaryFolder folder;
  const std::string file = write_rows(folder, 400);
  auto job = start_job(probe(file, {"--pause", "60"}), 4, {}, cache_in(folder, "cache"));
  ASSERT_TRUE(
      eventually([&] { return fs::exists(folder / "cache") && shards_in(folder / "cache").size() >= 3; }));
  job->signal(SIGKILL);
  job->wait();
  // The ranks end after their launcher, each at a different time.
  const auto settled = [&] {
    for (const auto& entry : fs::directory_iterator(folder / "cache"))
      if (live_lease(entry.path())) return false;
    return true;
  };
  ASSERT_TRUE(eventually(settled));
  const auto finished = static_cast<int>(shards_in(folder / "cache").size());
  const auto again = run_job(probe(file), 4, {}, cache_in(folder, "cache"));
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(batches_computed(again.out), 40 - 2 * finished) << "two batches in each part";
  EXPECT_LT(finished, 20);
}

TEST(MapByRanks, WhatIsPreparedIsFoundOnTheNodesDisk) {
  const TemporaryFolder folder;
  const std::string file = write_rows(folder, 100), list = folder / "list";
  const auto prepared =
      launch::launch({"prepare", "--list", list, LOCKSTEP_MAP_PROBE, file},
                     {{"LOCKSTEP_CACHE", folder / "shared"}, {"RANK", "3"}, {"WORLD_SIZE", "9"}});
  ASSERT_EQ(prepared.status, 0) << prepared.err;
  EXPECT_EQ(prepared.out, "rank 0 computed 10 batches\n") << "and has ended there";
  const auto staged =
      launch::launch({"stage", "--print-path", "--list", list}, {{"SLURM_TMPDIR", folder / "local"}});
  ASSERT_EQ(staged.status, 0) << staged.err;
  const std::string local = staged.out.substr(0, staged.out.size() - 1);
  EXPECT_TRUE(local.starts_with((folder / "local").string())) << local;
  fs::remove_all(folder / "shared");
  const auto job = run_job(probe(file), 2, {}, {{"LOCKSTEP_CACHE", local}});
  EXPECT_EQ(job.status, 0) << job.err;
  EXPECT_EQ(batches_computed(job.out), 0);
  EXPECT_EQ(count_lines_with(job.out, " has 100 rows "), 2);
}

TEST(MapByRanks, TokenizesRealTexts) {
  if (!fs::exists(LOCKSTEP_BANKING77))
    GTEST_SKIP() << "the texts of banking77 are not beside this checkout: " LOCKSTEP_BANKING77;
  const TemporaryFolder folder;
  const Words flags{"--tokenizer", LOCKSTEP_TOKENIZER_DIR "/bert.json", "--shard-rows", "1000"};
  Words alone = flags;
  alone.insert(alone.end(), {"--num-proc", "1"});
  const auto one = run_job(probe(LOCKSTEP_BANKING77, alone), 1, {}, cache_in(folder, "one"));
  ASSERT_EQ(one.status, 0) << one.err;
  const auto four = run_job(probe(LOCKSTEP_BANKING77, flags), 4, {}, cache_in(folder, "four"));
  ASSERT_EQ(four.status, 0) << four.err;
  EXPECT_EQ(count_lines_with(four.out, " has 10003 rows "), 4) << four.out;
  EXPECT_EQ(shards_in(folder / "four"), shards_in(folder / "one"));
}

}  // namespace
}  // namespace lockstep::testing
