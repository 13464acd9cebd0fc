#include <algorithm>
#include <filesystem>

#include "job.hpp"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using launch::read_file;

TEST(MainProcessFirst, TheMainProcessComesFirst) {
  const ScratchFolder folder;
  const Finished job = run_probe(3, {"order", folder.file("order")});
  EXPECT_EQ(job.status, 0) << job.err;
  auto ranks = lines_of(read_file(folder.file("order")));
  ASSERT_EQ(ranks.size(), 3U);
  EXPECT_EQ(ranks[0], "0");
  std::sort(ranks.begin(), ranks.end());
  EXPECT_EQ(ranks, (Words{"0", "1", "2"}));
}

/// Two nodes of two ranks, started by hand. Node 0's main process waits for the end of node 1: if node 1 had
/// to wait for it, there would be a deadlock.
TEST(MainProcessFirst, LocalMainProcessesAreFirstOnTheirOwnNodes) {
  const ScratchFolder folder;
  const int port = free_port();
  std::vector<std::unique_ptr<LauncherProcess>> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    Environment variables = by_hand(rank, 4, port);
    variables["LOCAL_RANK"] = std::to_string(rank % 2);
    variables["LOCAL_WORLD_SIZE"] = "2";
    ranks.push_back(start_probe({"local_order", folder.file("order")}, variables));
  }
  for (const auto& rank : ranks) {
    const Finished ended = rank->wait();
    EXPECT_EQ(ended.status, 0) << ended.err;
  }
  EXPECT_EQ(lines_of(read_file(folder.file("order"))), (Words{"2", "3", "0", "1"}));
}

TEST(MainProcessFirst, ASlowMainProcessTimesNobodyOut) {
  const Finished job = run_probe(2, {"slow_main"});
  EXPECT_EQ(job.status, 0);
  EXPECT_EQ(job.err, "");
}

TEST(MainProcessFirst, AnExceptionReachesEveryRankWithItsText) {
  const Finished job = run_probe(3, {"main_throws"});
  EXPECT_EQ(job.status, 1);
  EXPECT_TRUE(blames(job, 0));
  EXPECT_EQ(error_of_rank(job, 0), "digits.bin is cut off");
  for (const int rank : {1, 2}) {
    EXPECT_TRUE(contains_all(error_of_rank(job, rank),
                             {"because rank 0 failed in main_process_first", "digits.bin is cut off"}));
  }
}

TEST(MainProcessFirst, AnExceptionUnderTheGuardIsARemoteErrorElsewhere) {
  const Finished job = run_probe(3, {"guard_throws"});
  EXPECT_EQ(job.status, 1);
  EXPECT_TRUE(blames(job, 0));
  EXPECT_EQ(error_of_rank(job, 0), "digits.bin is cut off");
  EXPECT_EQ(count_lines_with(job.out, "heard of rank 0"), 2) << job.out;
}

TEST(SaveModel, FailsOnEveryRankWhereTheFolderCannotBeMade) {
  const ScratchFolder folder;
  const std::string file = folder.write("file", "not a folder");
  const Finished job = run_probe(3, {"save", file + "/out"});
  EXPECT_EQ(job.status, 1);
  EXPECT_TRUE(blames(job, 0));
  for (const int rank : {0, 1, 2}) {
    EXPECT_TRUE(
        contains_all(error_of_rank(job, rank), {"cannot make the folder", file + "/out", "Not a directory"}));
  }
  EXPECT_EQ(read_file(file), "not a folder");
}

TEST(SaveModel, LeavesNothingHalfWritten) {
  const ScratchFolder folder;
  fs::create_directories(folder.file("out/model.safetensors/in_the_way"));
  const Finished job = run_probe(2, {"save", folder.file("out")});
  EXPECT_EQ(job.status, 1);
  EXPECT_TRUE(blames(job, 0));
  for (const int rank : {0, 1}) EXPECT_TRUE(contains_all(error_of_rank(job, rank), {"model.safetensors"}));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.file("out")), fs::directory_iterator()), 1);
}

/// Several jobs at once, so that ranks arrive in other orders than on an idle machine.
TEST(SaveModel, TheProgramMayEndRightAfterwards) {
  const ScratchFolder folder;
  for (int round = 0; round < 5; ++round) {
    std::vector<std::unique_ptr<LauncherProcess>> jobs;
    const auto out = [&](std::size_t job) {
      return folder.file("out" + std::to_string(4 * round) + std::to_string(job));
    };
    for (std::size_t job = 0; job < 4; ++job)
      jobs.push_back(start_job({LOCKSTEP_PROBE, "save", out(job)}, 2));
    for (std::size_t job = 0; job < 4; ++job) {
      const Finished ended = jobs[job]->wait();
      EXPECT_EQ(ended.status, 0) << ended.err;
      EXPECT_EQ(ended.err, "");
      EXPECT_TRUE(fs::exists(out(job) + "/model.safetensors"));
    }
  }
}

}  // namespace
}  // namespace lockstep::testing
