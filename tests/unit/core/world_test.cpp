#include "lockstep/core/world.hpp"

#include <gtest/gtest.h>

#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

Environment launched() {
  return {{"RANK", "3"},
          {"WORLD_SIZE", "4"},
          {"LOCAL_RANK", "1"},
          {"LOCAL_WORLD_SIZE", "2"},
          {"GROUP_RANK", "1"},
          {"GROUP_WORLD_SIZE", "2"},
          {"ROLE_NAME", "worker"},
          {"ROLE_RANK", "3"},
          {"ROLE_WORLD_SIZE", "4"},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", "29500"},
          {"TORCHELASTIC_RESTART_COUNT", "1"},
          {"TORCHELASTIC_MAX_RESTARTS", "3"},
          {"TORCHELASTIC_RUN_ID", "job"},
          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
          {"TORCHELASTIC_ERROR_FILE", "/tmp/error.json"},
          {"LOCKSTEP_JOB_TOKEN", "secret"}};
}

/// The message that `environment` is refused with; a failure when it is accepted.
std::string refusal(const Environment& environment) {
  try {
    World::from_environment(environment);
  } catch (const UsageError& error) {
    return error.what();
  }
  ADD_FAILURE() << "the environment was accepted";
  return "";
}

std::string refusal_with(std::string_view name, std::string_view value) {
  Environment environment = launched();
  environment[std::string(name)] = value;
  return refusal(environment);
}

TEST(World, ReadsTheWholeContract) {
  const World world = World::from_environment(launched());
  EXPECT_EQ(world.rank, 3);
  EXPECT_EQ(world.world_size, 4);
  EXPECT_EQ(world.local_rank, 1);
  EXPECT_EQ(world.local_world_size, 2);
  EXPECT_EQ(world.group_rank, 1);
  EXPECT_EQ(world.group_world_size, 2);
  EXPECT_EQ(world.role_name, "worker");
  EXPECT_EQ(world.role_rank, 3);
  EXPECT_EQ(world.role_world_size, 4);
  EXPECT_EQ(world.master_addr, "127.0.0.1");
  EXPECT_EQ(world.master_port, 29500);
  EXPECT_EQ(world.restart_count, 1);
  EXPECT_EQ(world.max_restarts, 3);
  EXPECT_EQ(world.run_id, "job");
  EXPECT_TRUE(world.use_agent_store);
  EXPECT_EQ(world.error_file, "/tmp/error.json");
  EXPECT_EQ(world.job_token, "secret");
  EXPECT_FALSE(world.is_main_process());
  EXPECT_FALSE(world.is_local_main_process());
  EXPECT_TRUE(world.is_last_process());
}

TEST(World, ALoneProcessIsAWorldOfOne) {
  const World world = World::from_environment({{"HOME", "/root"}, {"MASTER_PORT", "nonsense"}});
  EXPECT_EQ(world.rank, 0);
  EXPECT_EQ(world.world_size, 1);
  EXPECT_EQ(world.local_world_size, 1);
  EXPECT_TRUE(world.is_main_process());
  EXPECT_TRUE(world.is_last_process());
}

TEST(World, AWorldOfOneNeedsNoMaster) {
  const World world = World::from_environment({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  EXPECT_EQ(world.world_size, 1);
  EXPECT_TRUE(world.master_addr.empty());
}

TEST(World, GroupIsDerivedWhenAbsent) {
  Environment environment = launched();
  environment.erase("GROUP_RANK");
  environment.erase("GROUP_WORLD_SIZE");
  const World world = World::from_environment(environment);
  EXPECT_EQ(world.group_rank, 1);
  EXPECT_EQ(world.group_world_size, 2);
}

TEST(World, AGroupThatCannotBeDerivedMustBeGiven) {
  Environment environment = launched();
  environment.erase("GROUP_RANK");
  environment["RANK"] = "2";  // Local rank 1 of rank 2: the nodes are not blocks 0 1 | 2 3.
  EXPECT_NE(refusal(environment).find("GROUP_RANK is not set"), std::string::npos);
  environment["RANK"] = "3";
  environment["WORLD_SIZE"] = environment["ROLE_WORLD_SIZE"] = "5";
  EXPECT_NE(refusal(environment).find("GROUP_RANK is not set"), std::string::npos);
}

TEST(World, EveryNeededVariableIsNamedWhenMissing) {
  for (const auto* name :
       {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    Environment environment = launched();
    environment.erase(name);
    EXPECT_NE(refusal(environment).find(std::string("environment variable ") + name + " is not set"),
              std::string::npos)
        << name;
  }
}

/// As for torch.distributed's env://.
TEST(World, FourVariablesAreEnoughOnOneHost) {
  for (const auto* host : {"127.0.0.1", "localhost", "::1"}) {
    const World world = World::from_environment(
        {{"RANK", "2"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", host}, {"MASTER_PORT", "29500"}});
    EXPECT_EQ(world.local_rank, 2);
    EXPECT_EQ(world.local_world_size, 3);
    EXPECT_EQ(world.group_world_size, 1);
  }
  const std::string text =
      refusal({{"RANK", "2"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29500"}});
  EXPECT_NE(text.find("LOCAL_WORLD_SIZE is not set"), std::string::npos) << text;
  EXPECT_NE(text.find("as well as LOCAL_RANK"), std::string::npos) << text;
}

TEST(World, WorldSizeAloneNeverBecomesAWorldOfOne) {
  EXPECT_NE(refusal({{"WORLD_SIZE", "4"}}).find("RANK is not set, but WORLD_SIZE=4 is"), std::string::npos);
  EXPECT_NE(refusal({{"LOCAL_RANK", "1"}}).find("WORLD_SIZE is not set"), std::string::npos);
}

TEST(World, MalformedValuesAreNamedWithTheirValue) {
  EXPECT_NE(refusal_with("RANK", "three").find("RANK='three': expected an integer from 0"),
            std::string::npos);
  EXPECT_NE(refusal_with("RANK", "").find("RANK=''"), std::string::npos);
  EXPECT_NE(refusal_with("RANK", "1x").find("RANK='1x'"), std::string::npos);
  EXPECT_NE(refusal_with("RANK", "-1").find("RANK='-1'"), std::string::npos);
  EXPECT_NE(refusal_with("WORLD_SIZE", "0").find("WORLD_SIZE='0': expected an integer from 1"),
            std::string::npos);
  EXPECT_NE(refusal_with("WORLD_SIZE", "99999999999").find("WORLD_SIZE='99999999999'"), std::string::npos);
  EXPECT_NE(refusal_with("MASTER_PORT", "65536").find("an integer from 1 to 65535"), std::string::npos);
  EXPECT_NE(refusal_with("MASTER_ADDR", "").find("MASTER_ADDR=''"), std::string::npos);
  EXPECT_NE(refusal_with("TORCHELASTIC_USE_AGENT_STORE", "1").find("expected True or False"),
            std::string::npos);
}

TEST(World, ContradictionsAreNamed) {
  EXPECT_NE(refusal_with("RANK", "4").find("RANK='4': expected less than WORLD_SIZE=4"), std::string::npos);
  EXPECT_NE(refusal_with("LOCAL_RANK", "2").find("expected less than LOCAL_WORLD_SIZE=2"), std::string::npos);
  EXPECT_NE(refusal_with("LOCAL_WORLD_SIZE", "5").find("expected at most WORLD_SIZE=4"), std::string::npos);
  EXPECT_NE(refusal_with("GROUP_RANK", "2").find("expected less than GROUP_WORLD_SIZE=2"), std::string::npos);
  EXPECT_NE(refusal_with("ROLE_RANK", "4").find("expected less than ROLE_WORLD_SIZE=4"), std::string::npos);
  Environment environment = launched();
  environment["RANK"] = "0";
  EXPECT_NE(refusal(environment).find("LOCAL_RANK='1': expected at most RANK=0"), std::string::npos);
}

TEST(Environment, IsASnapshotOfTheProcess) {
  ASSERT_EQ(setenv("LOCKSTEP_TEST_VARIABLE", "a=b", 1), 0);
  const Environment environment = process_environment();
  ASSERT_EQ(unsetenv("LOCKSTEP_TEST_VARIABLE"), 0);
  EXPECT_EQ(find_variable(environment, "LOCKSTEP_TEST_VARIABLE"), "a=b");
  EXPECT_FALSE(find_variable(environment, "LOCKSTEP_TEST_ABSENT").has_value());
}

}  // namespace
}  // namespace lockstep
