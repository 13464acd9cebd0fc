#include "job.hpp"

namespace lockstep::testing {
namespace {

/// `torchrun --no-python` instead of our launcher.
Finished run_by_torchrun(const Words& words, const std::string& program = LOCKSTEP_PROBE) {
  Words all{"-m", "torch.distributed.run", "--no-python", "--standalone", "--nproc-per-node=3", program};
  all.insert(all.end(), words.begin(), words.end());
  return LauncherProcess(all, {{"OMP_NUM_THREADS", "1"}}, {}, LOCKSTEP_TEST_PYTHON).wait();
}

TEST(Torchrun, RunsOurRanksThroughItsOwnStore) {
  const Finished job = run_by_torchrun({"collectives"});
  EXPECT_EQ(job.status, 0) << job.err;
  EXPECT_EQ(job.out, "all collectives are right on 3 ranks\n");
}

TEST(Torchrun, ShowsTheWordsOfTheRankThatFailed) {
  const Finished job = run_by_torchrun({"throws"});
  EXPECT_EQ(job.status, 1);
  const auto cause = job.err.find("Root Cause (first observed failure):");
  ASSERT_NE(cause, std::string::npos) << job.err;
  EXPECT_TRUE(contains_all(job.err.substr(cause),
                           {"rank      : 1 (local_rank: 1)", "exception: sample 17 has no label"}));
}

/// The program of `lockstep bench comm`; each rank finds the others as under our launcher.
TEST(Torchrun, RunsTheBenchmark) {
  const Finished job = run_by_torchrun({"--collective=all", "--min-bytes=1K", "--max-bytes=1K",
                                        "--iterations=2", "--warmup=1", "--timeout=60"},
                                       LOCKSTEP_BENCH);
  EXPECT_EQ(job.status, 0) << job.err;
  EXPECT_TRUE(contains_all(job.out, {"# 3 ranks on 1 node(s), backend auto", "# all_reduce\n", "# barrier\n",
                                     "# send_recv\n", "       0\n"}));
}

}  // namespace
}  // namespace lockstep::testing
