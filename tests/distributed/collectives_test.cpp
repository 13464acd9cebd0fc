#include "job.hpp"

namespace lockstep::testing {
namespace {

TEST(Processes, EveryCollectiveIsRight) {
  const Finished job = run_probe(3, {"collectives"});
  EXPECT_EQ(job.status, 0) << job.err;
  EXPECT_EQ(job.out, "all collectives are right on 3 ranks\n");
  EXPECT_EQ(job.err, "");
}

TEST(Processes, WorkWithoutALauncher) {
  const int port = free_port();
  const auto first = start_probe({"train"}, by_hand(0, 2, port));
  const auto second = start_probe({"train"}, by_hand(1, 2, port));
  const Finished one = first->wait();
  const Finished two = second->wait();
  EXPECT_EQ(one.status, 0) << one.err;
  EXPECT_EQ(two.status, 0) << two.err;
  EXPECT_EQ(one.out, "trained on 2 ranks\n");
  EXPECT_EQ(one.err + two.out + two.err, "");
}

}  // namespace
}  // namespace lockstep::testing
