#include "job.hpp"

namespace lockstep::testing {
namespace {

Finished run_check(int ranks, const Words& more = {}) {
  Words words{"run", "--check", "--nproc-per-node", std::to_string(ranks)};
  words.insert(words.end(), more.begin(), more.end());
  return launch::launch(words);
}

TEST(Check, PassesOnThisHost) {
  const Finished job = run_check(3);
  EXPECT_EQ(job.status, 0) << job.err;
  EXPECT_TRUE(
      contains_all(job.out, {"check: 3 ranks on 1 node(s)\n", "reach: all 6 connections between ranks",
                             "barrier", "32 MiB", "0 - 1", "0 - 2", "1 - 2", "check: passed\n"}));
  EXPECT_EQ(count_lines_with(job.out, "all_reduce"), 5) << job.out;
  EXPECT_EQ(count_lines_with(job.out, " ok"), 6) << job.out;
}

TEST(Check, NeedsTwoRanksAndNoProgram) {
  EXPECT_EQ(run_check(1).status, 2);
  const Finished with_program = run_check(2, {"true"});
  EXPECT_EQ(with_program.status, 2);
  EXPECT_TRUE(contains_all(with_program.err, {"--check runs a program of its own: drop 'true'"}));
}

}  // namespace
}  // namespace lockstep::testing
