#include <gtest/gtest.h>

#include "cli/new.hpp"
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

/// The example's text with the project's name in it.
std::string renamed_example(const std::string& file) {
  std::string text = read_bytes(std::string(LOCKSTEP_EXAMPLES) + "/" + file);
  for (auto at = text.find("custom_trainer"); at != std::string::npos; at = text.find("custom_trainer"))
    text.replace(at, 14, "my-net");
  return text;
}

TEST(NewCommand, WritesTheExampleUnderAnotherName) {
  const TemporaryFolder folder;
  const Finished outcome = run_new({folder / "my-net"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  for (const std::string name : {"CMakeLists.txt", "README.md", "train.sbatch", "trainer.cpp"}) {
    const std::string written = read_bytes(folder / ("my-net/" + name));
    EXPECT_EQ(written, renamed_example("custom_trainer/" + name)) << name;
    EXPECT_NE(written.find("my-net"), std::string::npos) << name;
  }
}

TEST(NewCommand, WritesALoopByTemplate) {
  for (const std::string name : {"accelerate", "ddp"}) {
    const TemporaryFolder folder;
    const Finished outcome = run_new({"--template", name, folder / "my-net"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(read_bytes(folder / "my-net/trainer.cpp"), renamed_example(name + ".cpp"));
    EXPECT_EQ(read_bytes(folder / "my-net/CMakeLists.txt"), renamed_example("training_loop/CMakeLists.txt"));
  }
  const Finished refused = run_new({"--template", "gan", "net"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(testing::contains_all(refused.err, {"--template", "trainer", "accelerate", "ddp"}));
}

TEST(NewCommand, OverwritesNothingAndRefusesBadNames) {
  const TemporaryFolder folder;
  testing::write_bytes(folder / "mine", "x");
  EXPECT_TRUE(testing::contains_all(run_new({folder / "mine"}).err, {"lockstep new: ", "already exists"}));
  for (const std::string name : {"1net", "a b", "net;", "..", "test", "install"})
    EXPECT_EQ(run_new({folder / name}).status, 2) << name;
  EXPECT_EQ(folder.files(), std::vector<std::string>{"mine"});
}

TEST(NewCommand, HelpsAndDemandsOneName) {
  EXPECT_TRUE(testing::contains_all(run_new({"--help"}).out, {"usage: lockstep new [options] NAME"}));
  EXPECT_EQ(run_new({}).status, 2);
  EXPECT_TRUE(testing::contains_all(run_new({}).err, {"lockstep new: the NAME is missing"}));
  EXPECT_EQ(run_new({"a", "b"}).status, 2);
}

}  // namespace
}  // namespace lockstep::launch
