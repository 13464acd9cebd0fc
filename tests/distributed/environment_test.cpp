#include "job.hpp"

namespace lockstep::testing {
namespace {

/// A process with these variables and no others of the launcher's.
Finished run_alone(const Environment& variables) { return start_probe({"hello"}, variables)->wait(); }

struct Wrong {
  const char* name;
  Environment variables;
  Words expected;
};

class AWrongEnvironment : public ::testing::TestWithParam<Wrong> {};

Environment with(Environment variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}

Environment without(Environment variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

const Environment kGood = by_hand(0, 2, 29500);

INSTANTIATE_TEST_SUITE_P(
    With, AWrongEnvironment,
    ::testing::Values(
        Wrong{"OnlyAWorldSize",
              {{"WORLD_SIZE", "2"}},
              {"environment variable RANK is not set", "WORLD_SIZE=2"}},
        Wrong{"NoRank", without(kGood, "RANK"), {"environment variable RANK is not set"}},
        Wrong{"NoWorldSize", without(kGood, "WORLD_SIZE"), {"environment variable WORLD_SIZE is not set"}},
        Wrong{"NoLocalRank", without(kGood, "LOCAL_RANK"), {"environment variable LOCAL_RANK is not set"}},
        Wrong{"NoAddress", without(kGood, "MASTER_ADDR"), {"environment variable MASTER_ADDR is not set"}},
        Wrong{"NoPort", without(kGood, "MASTER_PORT"), {"environment variable MASTER_PORT is not set"}},
        Wrong{"ARankOfLetters", with(kGood, "RANK", "one"), {"RANK='one': expected an integer"}},
        Wrong{"ARankTooLarge", with(kGood, "RANK", "2"), {"RANK='2': expected less than WORLD_SIZE=2"}},
        Wrong{"ANegativeRank", with(kGood, "RANK", "-1"), {"RANK='-1': expected an integer from 0"}},
        Wrong{"AnEmptyWorldSize", with(kGood, "WORLD_SIZE", ""), {"WORLD_SIZE='': expected an integer"}},
        Wrong{
            "AWorldOfNobody", with(kGood, "WORLD_SIZE", "0"), {"WORLD_SIZE='0': expected an integer from 1"}},
        Wrong{"APortTooLarge",
              with(kGood, "MASTER_PORT", "99999"),
              {"MASTER_PORT='99999': expected an integer from 1 to 65535"}}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_P(AWrongEnvironment, IsNamedAndNeverTrainsAlone) {
  const Finished ended = run_alone(GetParam().variables);
  EXPECT_EQ(ended.status, 2);
  EXPECT_EQ(ended.out, "");
  EXPECT_EQ(lines_of(ended.err).size(), 1U) << ended.err;
  for (const auto& part : GetParam().expected) EXPECT_TRUE(contains_all(ended.err, {"error: ", part}));
}

TEST(AnEmptyEnvironment, IsAWorldOfOne) {
  const Finished ended = run_alone({});
  EXPECT_EQ(ended.status, 0);
  EXPECT_EQ(ended.out, "a world of 1\n");
  EXPECT_EQ(ended.err, "");
}

/// LibTorch's log is shown only on request. The other tests of this folder check that it is silent.
TEST(LibTorchsLog, IsShownToThoseWhoAsk) {
  for (const std::string variable : {"ANOTHER_VARIABLE", "TORCH_CPP_LOG_LEVEL"}) {
    const Finished talkative = run_probe(1, {"library_warning"}, {}, {{variable, "WARNING"}});
    EXPECT_EQ(talkative.status, 0);
    EXPECT_EQ(count_lines_with(talkative.err, "a warning of LibTorch's log"),
              variable == "TORCH_CPP_LOG_LEVEL" ? 1 : 0)
        << talkative.err;
  }
}

}  // namespace
}  // namespace lockstep::testing
