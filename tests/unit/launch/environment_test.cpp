// What lockstep env tells, and what it keeps to itself.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/commands.hpp"
#include "cli/facts.hpp"
#include "lockstep/core/error.hpp"
#include "support/throws.hpp"
#include "unit/launch/launcher_process.hpp"

namespace lockstep::launch {
namespace {

using lockstep::testing::contains_all;
using nlohmann::json;

TEST(Env, ShowsTheVariablesThatMatterAndNoSecret) {
  const Facts facts = variable_facts({{"LOCKSTEP_JOB_TOKEN", "geheim"},
                                      {"NCCL_DEBUG", "INFO"},
                                      {"RANK", "3"},
                                      {"HOME", "/home/x"},
                                      {"AWS_SECRET_ACCESS_KEY", "geheim"},
                                      {"TORCH_API_KEY", "geheim"}});
  const Facts wanted = {
      {"LOCKSTEP_JOB_TOKEN", "(set)"}, {"NCCL_DEBUG", "INFO"}, {"RANK", "3"}, {"TORCH_API_KEY", "(set)"}};
  EXPECT_EQ(facts, wanted);
}

TEST(Env, KnowsTheHost) {
  std::map<std::string, std::string> facts;
  for (const auto& [name, value] : host_facts()) facts[name] = value;
  EXPECT_TRUE(contains_all(facts["CPUs"], {"usable of", "NUMA node"}));
  EXPECT_TRUE(contains_all(facts["memory"], {"GiB", "available"}));
  EXPECT_TRUE(contains_all(facts["network interfaces"], {"lo"}));
  EXPECT_TRUE(contains_all(facts["system"], {"Linux"}));
}

TEST(Env, AsksTheLibrary) {
  const Finished finished = launch({"env", "--json"}, {{"NCCL_DEBUG", "WARN"}});
  ASSERT_EQ(finished.status, 0) << finished.err;
  const json document = json::parse(finished.out);
  EXPECT_EQ(document["versions"]["lockstep"], LOCKSTEP_VERSION);
  EXPECT_EQ(document["versions"]["library"], LOCKSTEP_VERSION);
  EXPECT_TRUE(document["versions"]["LibTorch"].get<std::string>().starts_with("2."));
  EXPECT_EQ(document["variables"]["NCCL_DEBUG"], "WARN");
}

TEST(Env, RefusesOtherWords) {
  std::ostringstream out;
  EXPECT_THROWS(env_command({"--jason"}, out, out), UsageError, "unknown flag --jason",
                "did you mean '--json'?");
}

}  // namespace
}  // namespace lockstep::launch
