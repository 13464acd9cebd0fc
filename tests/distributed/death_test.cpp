#include <csignal>
#include <utility>

#include "job.hpp"
#include "lockstep/core/runtime/program.hpp"

namespace lockstep::testing {
namespace {

class AKilledRank : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(In, AKilledRank,
                         ::testing::Values("killed_in_all_reduce", "killed_in_barrier", "killed_in_backward",
                                           "killed_in_sharded_backward"),
                         [](const auto& test) { return std::string(test.param); });

/// Timeouts of the probe are 40 s, and LauncherProcess waits for 60 s: a job that ended by a timeout would
/// say so.
TEST_P(AKilledRank, EndsTheJobAndIsNamed) {
  const Finished job = run_probe(3, {GetParam()});
  EXPECT_EQ(job.status, 128 + SIGKILL);
  EXPECT_TRUE(blames(job, 1));
  EXPECT_EQ(count_lines_with(job.err, "FAILED: rank 1 (local rank 1, pid "), 1);
  EXPECT_EQ(count_lines_with(job.err, "probe) was killed by SIGKILL (Killed)"), 2)
      << "first and last: " << job.err;
  EXPECT_EQ(count_lines_with(job.err, "timed out"), 0) << job.err;
}

/// A collective and its backend.
using Place = std::pair<const char*, const char*>;

class ARankKilledWithoutALauncher : public ::testing::TestWithParam<Place> {};
INSTANTIATE_TEST_SUITE_P(
    In, ARankKilledWithoutALauncher,
    ::testing::Values(Place{"all_reduce", "auto"}, Place{"small_all_reduce", "auto"},
                      Place{"all_reduce_async", "auto"}, Place{"broadcast", "auto"}, Place{"reduce", "auto"},
                      Place{"all_gather", "auto"}, Place{"gather", "auto"}, Place{"scatter", "auto"},
                      Place{"reduce_scatter", "auto"}, Place{"all_to_all", "auto"}, Place{"barrier", "auto"},
                      Place{"send_and_recv", "auto"}, Place{"all_reduce", "gloo"}, Place{"broadcast", "gloo"},
                      Place{"reduce", "gloo"}, Place{"all_gather", "gloo"}, Place{"gather", "gloo"},
                      Place{"scatter", "gloo"}, Place{"reduce_scatter", "gloo"}, Place{"all_to_all", "gloo"},
                      Place{"send_and_recv", "gloo"}),
    [](const auto& test) { return std::string(test.param.first) + "_" + test.param.second; });

/// No launcher ends the other rank: it must find out by itself, and before its timeout.
TEST_P(ARankKilledWithoutALauncher, IsNamedByTheOther) {
  const auto [collective, backend] = GetParam();
  const int port = free_port();
  const auto survivor = start_probe({"killed_in", collective, backend}, by_hand(0, 2, port));
  const auto killed = start_probe({"killed_in", collective, backend}, by_hand(1, 2, port));
  const std::string pid = std::to_string(killed->pid());
  EXPECT_EQ(killed->wait().status, -SIGKILL);
  const Finished end = survivor->wait();
  EXPECT_EQ(end.status, 1);
  EXPECT_TRUE(is_readable(end));
  const bool shares = std::string(backend) == "auto";
  EXPECT_TRUE(contains_all(error_of_rank(end, 0),
                           {shares ? "rank 1 (pid " + pid + ") has ended"
                                   : std::string("rank 1 does not answer: stopped, or gone")}));
  EXPECT_EQ(count_lines_with(end.err, "timed out"), 0) << end.err;
  // A rank that sees that a process has ended does not wait for answers.
  if (shares) {
    EXPECT_EQ(count_lines_with(end.err, "does not answer"), 0) << end.err;
  }
}

TEST(ARankThatThrows, IsNamedWithItsWords) {
  const Finished job = run_probe(3, {"throws"});
  EXPECT_EQ(job.status, 1);
  EXPECT_TRUE(blames(job, 1));
  EXPECT_EQ(error_of_rank(job, 1), "sample 17 has no label");
  EXPECT_TRUE(contains_all(job.err, {"exited with code 1\n  exception: sample 17 has no label\n"}));
}

/// The rank that leaves is a plain member or, without a launcher, the host of the store.
TEST(ARankThatLeavesEarly, IsNamedByTheBarrier) {
  const Finished job = run_probe(3, {"leaves_early", "2"});
  EXPECT_EQ(job.status, 1);
  EXPECT_TRUE(is_readable(job));
  for (const int rank : {0, 1}) {
    EXPECT_TRUE(contains_all(error_of_rank(job, rank), {"barrier #1 failed: rank 2 ("}));
  }
}

TEST(ARankThatLeavesEarly, IsNamedThoughItHostedTheStore) {
  const int port = free_port();
  const auto host = start_probe({"leaves_early", "0"}, by_hand(0, 2, port));
  const Finished left = start_probe({"leaves_early", "0"}, by_hand(1, 2, port))->wait();
  EXPECT_EQ(host->wait().status, 0);
  EXPECT_EQ(left.status, 1);
  EXPECT_TRUE(is_readable(left));
  EXPECT_TRUE(
      contains_all(error_of_rank(left, 1),
                   {"rank 1 of 2: barrier #1 failed: the job's store has closed the connection", "rank 0"}));
}

TEST(AStoppedRank, IsNamedByTheBarrier) {
  const Finished job = run_probe(3, {"stops"});
  EXPECT_EQ(job.status, kTimeoutExitCode);
  EXPECT_TRUE(is_readable(job));
  for (const int rank : {0, 2}) {
    EXPECT_TRUE(contains_all(error_of_rank(job, rank),
                             {"barrier #1 timed out after 1000 ms: rank 1 did not arrive"}));
  }
  // A rank that has reported its error may still be ending when the others are stopped: one line for both.
  const int alone = count_lines_with(job.err, "lockstep run: rank 1 was killed by SIGTERM");
  const int together = count_lines_with(job.err, "lockstep run: ranks 0-1 were killed by SIGTERM") +
                       count_lines_with(job.err, "lockstep run: ranks 1-2 were killed by SIGTERM");
  EXPECT_EQ(alone + together, 1) << job.err;
  EXPECT_EQ(count_lines_with(job.err, "killing them (--shutdown-timeout)"), 0) << job.err;
}

}  // namespace
}  // namespace lockstep::testing
