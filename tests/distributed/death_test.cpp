#include <csignal>

#include "job.hpp"

namespace lockstep::testing {
namespace {

class AKilledRank : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(In, AKilledRank,
                         ::testing::Values("killed_in_all_reduce", "killed_in_barrier", "killed_in_backward"),
                         [](const auto& test) { return std::string(test.param); });

/// Timeouts of the probe are 40 s, and LauncherProcess waits for 60 s: a job that ended by a timeout would
/// say so.
TEST_P(AKilledRank, EndsTheJobAndIsNamed) {
  const Finished job = run_probe(3, {GetParam()});
  EXPECT_EQ(job.status, 128 + SIGKILL);
  EXPECT_TRUE(blames(job, 1));
  EXPECT_EQ(count_lines_with(job.err, "FAILED: rank 1 (local rank 1, pid "), 1);
  EXPECT_EQ(count_lines_with(job.err, "probe) was killed by SIGKILL (Killed)"), 1) << job.err;
  EXPECT_EQ(count_lines_with(job.err, "timed out"), 0) << job.err;
}

TEST(ARankThatThrows, IsNamedWithItsWords) {
  const Finished job = run_probe(3, {"throws"});
  EXPECT_EQ(job.status, 1);
  EXPECT_TRUE(blames(job, 1));
  EXPECT_EQ(error_of_rank(job, 1), "sample 17 has no label");
  EXPECT_TRUE(contains_all(job.err, {"exited with code 1\n  exception: sample 17 has no label\n"}));
}

/// Whether the rank that leaves is one that only took part, or, without a launcher, the one that hosts the
/// store.
TEST(ARankThatLeavesEarly, IsNamedByTheBarrier) {
  const Finished job = run_probe(3, {"leaves_early", "2"});
  EXPECT_EQ(job.status, 1);
  EXPECT_TRUE(is_readable(job));
  for (const int rank : {0, 1}) {
    EXPECT_TRUE(
        contains_all(error_of_rank(job, rank), {"barrier #1 timed out after 2000 ms: rank 2 did not come"}));
  }
}

TEST(ARankThatLeavesEarly, IsNamedThoughItHostedTheStore) {
  const int port = free_port();
  const auto host = start_probe({"leaves_early", "0"}, by_hand(0, 2, port));
  const Finished left = start_probe({"leaves_early", "0"}, by_hand(1, 2, port))->wait();
  EXPECT_EQ(host->wait().status, 0);
  EXPECT_EQ(left.status, 1);
  EXPECT_TRUE(is_readable(left));
  EXPECT_TRUE(contains_all(error_of_rank(left, 1),
                           {"rank 1 of 2: barrier #1 failed: the job's store is gone", "rank 0"}));
}

TEST(AStoppedRank, IsNamedByTheBarrier) {
  const Finished job = run_probe(3, {"stops"});
  EXPECT_EQ(job.status, 1);
  EXPECT_TRUE(is_readable(job));
  for (const int rank : {0, 2}) {
    EXPECT_TRUE(
        contains_all(error_of_rank(job, rank), {"barrier #1 timed out after 1000 ms: rank 1 did not come"}));
  }
  EXPECT_EQ(count_lines_with(job.err, "lockstep run: rank 1 (local rank 1, pid "), 1) << job.err;
  EXPECT_EQ(count_lines_with(job.err, "they are killed (--shutdown-timeout)"), 0) << job.err;
}

}  // namespace
}  // namespace lockstep::testing
