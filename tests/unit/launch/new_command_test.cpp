#include <gtest/gtest.h>

#include "cli/commands.hpp"
#include "cli/new_project.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"
#include "unit/launch/launcher_process.hpp"

namespace lockstep::launch {
namespace {

using testing::read_bytes;
using testing::TemporaryFolder;

Finished run_new(const Words& names) {
  Words words{"new"};
  words.insert(words.end(), names.begin(), names.end());
  return launch(words);
}

TEST(NewCommand, WritesTheExampleUnderAnotherName) {
  const TemporaryFolder folder;
  const Finished outcome = run_new({folder / "my-net"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(project_files().size(), 4U);
  for (const auto& [name, text] : project_files()) {
    std::string expected = read_bytes(std::string(LOCKSTEP_EXAMPLE) + "/" + name);
    EXPECT_NE(expected.find("custom_trainer"), std::string::npos) << name;
    for (auto at = expected.find("custom_trainer"); at != std::string::npos;
         at = expected.find("custom_trainer"))
      expected.replace(at, 14, "my-net");
    EXPECT_EQ(read_bytes(folder / ("my-net/" + name)), expected) << name;
  }
}

TEST(NewCommand, WritesNothingOverAndRefusesBadNames) {
  const TemporaryFolder folder;
  testing::write_bytes(folder / "mine", "x");
  EXPECT_TRUE(testing::contains_all(run_new({folder / "mine"}).err, {"lockstep new: ", "there already"}));
  for (const std::string name : {"1net", "a b", "net;", "..", "test", "install"})
    EXPECT_EQ(run_new({folder / name}).status, 2) << name;
  EXPECT_EQ(folder.files(), std::vector<std::string>{"mine"});
}

TEST(NewCommand, HelpsAndDemandsOneName) {
  EXPECT_TRUE(testing::contains_all(run_new({"--help"}).out, {"usage: lockstep new NAME"}));
  EXPECT_EQ(run_new({}).status, 2);
  EXPECT_TRUE(testing::contains_all(run_new({}).err, {"lockstep new: the NAME is missing"}));
  EXPECT_EQ(run_new({"a", "b"}).status, 2);
}

}  // namespace
}  // namespace lockstep::launch
