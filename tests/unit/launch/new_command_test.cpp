#include <gtest/gtest.h>

#include <sstream>

#include "cli/commands.hpp"
#include "cli/new_project.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep::launch {
namespace {

using testing::read_bytes;
using testing::TemporaryFolder;

struct Outcome {
  int status;
  std::string out;
  std::string err;
};

Outcome run_new(const std::vector<std::string>& words) {
  std::ostringstream out;
  std::ostringstream err;
  const int status = new_command(words, out, err);
  return {status, out.str(), err.str()};
}

TEST(NewCommand, WritesTheExampleUnderAnotherName) {
  const TemporaryFolder folder;
  const Outcome outcome = run_new({folder / "my-net"});
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
  EXPECT_TRUE(testing::contains_all(run_new({folder / "mine"}).err, {"there already"}));
  for (const std::string name : {"1net", "a b", "net;", "..", "test", "install"})
    EXPECT_EQ(run_new({folder / name}).status, 2) << name;
  EXPECT_EQ(folder.files(), std::vector<std::string>{"mine"});
}

TEST(NewCommand, HelpsAndDemandsOneName) {
  EXPECT_TRUE(testing::contains_all(run_new({"--help"}).out, {"usage: lockstep new NAME"}));
  EXPECT_EQ(run_new({}).status, 2);
  EXPECT_EQ(run_new({"a", "b"}).status, 2);
}

}  // namespace
}  // namespace lockstep::launch
