// What all commands of the launcher have in common.
#include <gtest/gtest.h>

#include <filesystem>

#include "cli/commands.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"
#include "unit/launch/launcher_process.hpp"

namespace lockstep::launch {
namespace {

using testing::contains_all;

/// Every command line that reads options of its own.
const std::vector<Words>& command_lines() {
  static const std::vector<Words> all{{"run"},
                                      {"stacks"},
                                      {"trace"},
                                      {"report"},
                                      {"check"},
                                      {"bench", "comm"},
                                      {"cache", "ls"},
                                      {"cache", "explain"},
                                      {"cache", "clear"},
                                      {"prepare"},
                                      {"stage"},
                                      {"checkpoint", "ls"},
                                      {"checkpoint", "verify"},
                                      {"checkpoint", "diff"},
                                      {"checkpoint", "merge"},
                                      {"new"},
                                      {"test"},
                                      {"env"},
                                      {"slurm", "script"},
                                      {"slurm", "submit"},
                                      {"slurm", "templates"}};
  return all;
}

Words with(Words words, const std::string& word) {
  words.push_back(word);
  return words;
}

TEST(Commands, NameThemselvesInTheirErrors) {
  for (const auto& words : command_lines()) {
    const Finished refused = launch(with(words, "--no-such-option"));
    EXPECT_EQ(refused.status, 2) << words.front();
    EXPECT_EQ(refused.err.find("lockstep " + words.front() + ": unknown flag --no-such-option"), 0U)
        << refused.err;
    EXPECT_EQ(refused.out, "");
  }
}

TEST(Commands, WithoutAProgramSpeakOfNone) {
  for (const Words& words : {Words{"check"}, Words{"test"}, Words{"bench", "comm"}}) {
    const std::string err = launch(with(with(words, "--nprc"), "4")).err;
    EXPECT_NE(err.find("unknown flag --nprc (did you mean"), std::string::npos) << err;
    EXPECT_EQ(err.find("the program"), std::string::npos) << err;
  }
}

TEST(Commands, ExplainThemselves) {
  const std::string all = launch({"--help"}).out;
  for (const auto& words : command_lines()) {
    const Finished help = launch(with(words, "--help"));
    EXPECT_EQ(help.status, 0) << help.err;
    EXPECT_EQ(help.out.find("usage: lockstep " + words.front()), 0U) << help.out;
    EXPECT_NE(all.find("\n  " + words.front() + " "), std::string::npos) << words.front();
  }
}

TEST(Commands, ThatAreUnknownNameTheNearest) {
  EXPECT_TRUE(contains_all(launch({"cahce"}).err, {"lockstep: expected run", "did you mean 'cache'?"}));
  EXPECT_TRUE(contains_all(launch({"cache", "clean"}).err,
                           {"lockstep cache: expected ls, explain or clear, not 'clean'", "'clear'"}));
}

TEST(Commands, OfToolsRefuseTheToolsOptionsBeforeARankStarts) {
  EXPECT_EQ(launch({"bench", "comm", "--nproc-per-node", "2", "--iterations=0"}).err,
            "lockstep bench: --iterations '0': expected a 32-bit integer, at least 1.\n");
  EXPECT_EQ(launch({"test", "--timeout", "soon"}).err,
            "lockstep test: --timeout 'soon': expected a number.\n");
}

/// The tool's flags and those of the run may be mixed; `--check` is the tool's own.
TEST(Commands, OfToolsGiveEachProgramItsOwnOptions) {
  const Finished outcome = launch({"bench", "comm", "--max_bytes", "64", "--nproc=3", "--no-check",
                                   "--dry-run", "--iterations=5", "--json", "a b"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(contains_all(outcome.out, {"lockstep-bench", "--max-bytes=64", "--check=false",
                                         "--iterations=5", "--json=a b", "WORLD_SIZE=3"}))
      << outcome.out;
  EXPECT_TRUE(contains_all(launch({"bench", "comm", "--max-byte", "64"}).err, {"unknown flag --max-byte"}));
  EXPECT_TRUE(
      contains_all(launch({"check", "--help", "--nonsense"}).out, {"usage: lockstep check", "lockstep run"}));
}

TEST(Commands, OfToolsRefuseAProgram) {
  for (const Words& words :
       {Words{"check"}, Words{"bench", "comm"}, Words{"test", "--nproc-per-node", "2"}}) {
    EXPECT_EQ(launch(with(words, "true")).err,
              "lockstep " + words.front() +
                  ": unexpected argument 'true': this command runs a program of its own. See --help.\n");
  }
}

TEST(Commands, SayHowToGetTheirProgramsWhereTheseAreNot) {
  const testing::TemporaryFolder folder;
  const std::string alone = folder / "lockstep";
  std::filesystem::copy_file(LOCKSTEP_LAUNCHER, alone);
  for (const Words& words : {Words{"bench", "comm"}, Words{"test"}, Words{"check"}}) {
    const Finished outcome = LauncherProcess(words, {}, {}, alone).wait();
    EXPECT_EQ(outcome.status, 2);
    EXPECT_TRUE(contains_all(outcome.err, {"is not beside this launcher", "cmake --build build"}));
  }
}

}  // namespace
}  // namespace lockstep::launch
