#include <csignal>

#include "job.hpp"

namespace lockstep::testing {
namespace {

TEST(ARankThatHangs, IsNamedAndEndsTheJobWithItsStacks) {
  const Finished job = run_probe(3, {"hangs", "4"}, {"--heartbeat-timeout=2", "--shutdown-timeout=1"});
  EXPECT_EQ(job.status, 124);
  EXPECT_EQ(count_lines_with(job.err, "FAILED: rank 1 (local rank 1, pid "), 1) << job.err;
  EXPECT_TRUE(contains_all(
      job.err, {"last seen in forward, step 4; ", "ranks 0, 2 have been waiting in backward, step 4 for ",
                "(--heartbeat-timeout): ending it", "stacks of rank 0 (pid ", "stacks of rank 2 (pid ",
                "probe::hangs("}));
}

TEST(ARankThatHangs, IsRestartedWhereRestartsAreLeft) {
  const Finished job =
      run_probe(2, {"hangs", "1"},
                {"--heartbeat-timeout=2", "--shutdown-timeout=1", "--max-restarts=1", "--restart-backoff=0"});
  EXPECT_EQ(job.status, 124);
  EXPECT_EQ(count_lines_with(job.err, "FAILED: rank 1 (local rank 1, pid "), 2) << job.err;
  EXPECT_EQ(count_lines_with(job.err, "restart 1 of 1"), 1) << job.err;
}

/// A rank that continues training must not be ended.
TEST(ARankThatMoves, IsLeftAlone) {
  const Finished job = run_probe(2, {"train"}, {"--heartbeat-timeout=30"});
  EXPECT_EQ(job.status, 0) << job.err;
  EXPECT_EQ(count_lines_with(job.err, "job hangs"), 0) << job.err;
}

TEST(ARankThatLeavesEarly, IsNamedThoughAnotherOneFails) {
  const Finished job = run_probe(2, {"leaves_in_collectives"});
  EXPECT_EQ(job.status, 1);
  EXPECT_EQ(
      count_lines_with(job.err, "rank 1 left at step 0 (exit code 0) while rank 0 was in all_reduce #4"), 1)
      << job.err;
}

/// In the launcher's report, and in the error file of the program that started the launcher.
TEST(ARankThatCrashes, LeavesItsStack) {
  const ScratchFolder folder;
  const std::string file = folder.file("error.json");
  const Finished job = run_probe(2, {"crashes"}, {}, {{"TORCHELASTIC_ERROR_FILE", file}});
  EXPECT_EQ(job.status, 128 + SIGSEGV);
  EXPECT_TRUE(contains_all(job.err, {"SIGSEGV (Segmentation fault) at address 0x0 in thread probe"}));
  EXPECT_TRUE(contains_all(launch::read_file(file), {"probe::crashes(", "SIGSEGV", "main+0x"}));
}

TEST(AJobThatAlwaysFails, IsGivenUpThoughRestartsAreLeft) {
  const Finished job = run_probe(2, {"always_fails"}, {"--max-restarts=9", "--restart-backoff=0.1"});
  EXPECT_EQ(job.status, 1);
  EXPECT_EQ(count_lines_with(job.err, ": restart "), 2) << job.err;
  EXPECT_EQ(count_lines_with(job.err, "3 attempts in a row got no further than step 0"), 1) << job.err;
  EXPECT_EQ(count_lines_with(job.err, "restart 2 of 9, after a pause of 0.2 s"), 1) << job.err;
}

/// A file that no rank can read: one line of a rank, and the launcher's report.
TEST(AnErrorOfAllRanks, IsPrintedByOneOfThem) {
  const Finished job = run_probe(3, {"always_fails"});
  EXPECT_EQ(job.status, 1);
  EXPECT_LE(count_lines_with(job.err, "]: error: no such file"), 1) << job.err;
  EXPECT_EQ(count_lines_with(job.err, "  DataError: no such file"), 1) << job.err;
}

/// The launcher continues, and so do the ranks.
TEST(StacksOnDemand, AreThoseOfAllRanks) {
  const auto job = start_job({LOCKSTEP_PROBE, "hangs", "2"}, 2);
  ASSERT_TRUE(launch::eventually([&] { return job->out().find("rank 1 hangs") != std::string::npos; }));
  // More than once: each request gets new stacks, unless others are being written.
  for (int i = 1; i <= 3; ++i) {
    const Finished asked = launch::launch({"stacks", std::to_string(job->pid())});
    EXPECT_EQ(asked.status, 0) << asked.err;
    ASSERT_TRUE(
        launch::eventually([&] { return count_lines_with(job->err(), "stacks of rank 1 (pid ") == i; }));
  }
  EXPECT_TRUE(contains_all(job->err(), {"stacks of rank 0 (pid ", "probe::hangs("}));
  job->signal(SIGINT);
  EXPECT_EQ(job->wait().status, 128 + SIGINT);
}

}  // namespace
}  // namespace lockstep::testing
