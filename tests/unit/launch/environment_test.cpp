// What lockstep env tells, and what it keeps to itself.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/env.hpp"
#include "lockstep/core/error.hpp"
#include "support/temporary_folder.hpp"
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
  EXPECT_EQ(document["features"]["data sets"], "yes");
  EXPECT_EQ(document["variables"]["NCCL_DEBUG"], "WARN");
}

TEST(Env, SaysWhatIsMissingAndHowToGetIt) {
  const lockstep::testing::TemporaryFolder folder;
  const std::string path = folder.path().string();
  const auto features = [&](const Facts& library, bool has_driver) {
    const Facts facts = feature_facts(library, path, has_driver, "/nowhere:" + path);
    return std::map<std::string, std::string>(facts.begin(), facts.end());
  };
  const auto put = [&](const char* name) {
    std::ofstream(path + "/" + name) << "#!/bin/sh\n";
    std::filesystem::permissions(path + "/" + name, std::filesystem::perms::owner_all);
  };

  auto bare = features({}, false);
  EXPECT_TRUE(contains_all(bare["CUDA"], {"no: NVIDIA's driver is not loaded", "install its driver"}));
  EXPECT_TRUE(contains_all(bare["Slurm"], {"no: sbatch is not on PATH", "slurm-client"}));
  EXPECT_TRUE(contains_all(bare["data sets"], {"no: liblockstep_datasets.so", "scripts/setup build"}));
  EXPECT_TRUE(
      contains_all(features({}, true)["CUDA"], {"no: Lockstep was built without CUDA", "LOCKSTEP_CUDA=ON"}));

  for (const char* name : {"liblockstep_cuda.so", "liblockstep_datasets.so", "sbatch", "srun"}) put(name);
  EXPECT_TRUE(contains_all(features({}, true)["Slurm"], {"no: scontrol is not on PATH"}));
  EXPECT_EQ(features({{"CUDA", "the driver is too old"}}, true)["CUDA"], "no: the driver is too old");
  EXPECT_TRUE(contains_all(features({}, true)["NCCL"], {"no: ", "no device is visible"}));

  put("scontrol");
  const std::map<std::string, std::string> wanted = {
      {"CUDA", "yes"}, {"NCCL", "yes: 2.28.9"}, {"Slurm", "yes"}, {"data sets", "yes"}};
  EXPECT_EQ(features({{"NCCL", "2.28.9"}}, true), wanted);
}

TEST(Env, RefusesOtherWords) {
  std::ostringstream out;
  EXPECT_THROWS(env_command({"--jason"}, out, out), UsageError, "unknown flag --jason",
                "did you mean '--json'?");
}

}  // namespace
}  // namespace lockstep::launch
