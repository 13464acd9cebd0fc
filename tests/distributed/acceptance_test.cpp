// lockstep test with different numbers of ranks.
#include "job.hpp"

namespace lockstep::testing {
namespace {

class Acceptance : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Worlds, Acceptance, ::testing::Values(1, 3));

TEST_P(Acceptance, Passes) {
  const Finished job = launch::launch({"test", "--nproc-per-node", std::to_string(GetParam())});
  EXPECT_EQ(job.status, 0) << job.err << job.out;
  EXPECT_EQ(count_lines_with(job.out, "ok      "), 16) << job.out;
  EXPECT_TRUE(contains_all(job.out, {"passed: 16 checks with " + std::to_string(GetParam()) + " rank(s)"}));
}

TEST(Acceptance, SaysWhatItCannotDo) {
  const Finished job = launch::launch({"test", "--device", "tpu"});
  EXPECT_EQ(job.status, 2);
  EXPECT_TRUE(contains_all(job.err, {"'tpu' is not a device"}));
}

}  // namespace
}  // namespace lockstep::testing
