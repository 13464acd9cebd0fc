#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "unit/launch/launcher_process.hpp"

namespace lockstep::launch {
namespace {

using Words = std::vector<std::string>;

/// Two ranks that say "out <rank>" and "err <rank>", with flags of the test's.
Finished talk(Words flags, const std::string& more = "") {
  flags.insert(flags.begin(), {"run", "--nproc-per-node=2"});
  flags.insert(flags.end(), {"sh", "-c", "echo out $RANK; echo err $RANK >&2; " + more});
  return launch(flags, {{"OMP_NUM_THREADS", "1"}});
}

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

/// The folder of the one run below a log folder.
std::string run_folder(const ScratchFolder& logs) {
  const std::filesystem::directory_iterator entries(logs.path());
  if (entries == end(entries)) {
    ADD_FAILURE() << "no log files";
    return "";
  }
  return entries->path();
}

TEST(LauncherOutput, RedirectsGoToFiles) {
  const ScratchFolder logs;
  const Finished result = talk({"--log-dir", logs.path(), "-r", "3", "--rdzv-id=job/1"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "");
  const std::string run = run_folder(logs);
  EXPECT_EQ(std::filesystem::path(run).filename().string().substr(0, 6), "job_1_");
  EXPECT_EQ(result.err, "lockstep run: log files are in " + run + "\n");
  for (const std::string rank : {"0", "1"}) {
    EXPECT_EQ(read_file(run + "/attempt_0/" + rank + "/stdout.log"), "out " + rank + "\n");
    EXPECT_EQ(read_file(run + "/attempt_0/" + rank + "/stderr.log"), "err " + rank + "\n");
  }
}

TEST(LauncherOutput, RedirectsOfSingleRanksAndStreams) {
  const ScratchFolder logs;
  const Finished result = talk({"--log-dir", logs.path(), "--redirect=0:1,1:2"});
  EXPECT_EQ(result.out, "out 1\n");
  EXPECT_TRUE(has_line(result.err, "err 0"));
  EXPECT_FALSE(has_line(result.err, "err 1"));
}

TEST(LauncherOutput, TeeNamesTheRankInFrontOfEachLine) {
  const Finished result = talk({"--tee=3", "--role=trainer"}, "printf 'half'");
  EXPECT_EQ(result.status, 0) << result.err;
  for (const std::string rank : {"0", "1"}) {
    EXPECT_TRUE(has_line(result.out, "[trainer" + rank + "]: out " + rank)) << result.out;
    EXPECT_TRUE(has_line(result.out, "[trainer" + rank + "]: half")) << result.out;
    EXPECT_TRUE(has_line(result.err, "[trainer" + rank + "]: err " + rank)) << result.err;
  }
}

TEST(LauncherOutput, TeeKeepsFilesWhereThereIsALogFolder) {
  const ScratchFolder logs;
  const Finished result = talk({"--tee=1", "--log-dir=" + logs.path()});
  EXPECT_TRUE(has_line(result.out, "[default1]: out 1"));
  EXPECT_EQ(read_file(run_folder(logs) + "/attempt_0/1/stdout.log"), "out 1\n");
  EXPECT_TRUE(has_line(result.err, "err 1"));
}

TEST(LauncherOutput, TheFilterHidesOtherRanksFromTheConsole) {
  EXPECT_EQ(talk({"--local-ranks-filter=1"}).out, "out 1\n");
  const ScratchFolder logs;
  const Finished result = talk({"--local-ranks-filter=1", "--tee=3", "--log-dir=" + logs.path()});
  EXPECT_EQ(result.out, "[default1]: out 1\n");
  EXPECT_EQ(read_file(run_folder(logs) + "/attempt_0/0/stdout.log"), "out 0\n");
}

TEST(LauncherOutput, LinesOfSeveralRanksNeverMix) {
  const Finished result =
      launch({"run", "--nproc-per-node=4", "--tee=1", "sh", "-c",
              "i=0; while [ $i -lt 200 ]; do printf 'a%d' $RANK; printf 'b%d\\n' $RANK; i=$((i+1)); "
              "done"});
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 800);
  for (const std::string rank : {"0", "1", "2", "3"}) {
    std::string line = "[default";
    line += rank;
    line += "]: a";
    line += rank;
    line += 'b';
    line += rank;
    line += '\n';
    long count = 0;
    for (auto at = result.out.find(line); at != std::string::npos; at = result.out.find(line, at + 1))
      ++count;
    EXPECT_EQ(count, 200);
  }
}

TEST(LauncherOutput, MuchOutputPassesWhole) {
  const Finished result = launch({"run", "--tee=1", "sh", "-c", "yes 0123456789 | head -n 100000"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out.size(), 100000U * (11 + std::string("[default0]: ").size()));
}

TEST(LauncherOutput, TheLastWordsComeBeforeTheReport) {
  const Finished result = talk({"--tee=2"}, "exit 3");
  EXPECT_EQ(result.status, 3);
  EXPECT_LT(result.err.find("]: err "), result.err.find("FAILED")) << result.err;
}

TEST(LauncherOutput, EveryAttemptHasItsFiles) {
  const ScratchFolder logs;
  const Finished result =
      talk({"-r1", "--max-restarts=1", "--log-dir=" + logs.path()},
           "[ $RANK = 0 ] || sleep 60; [ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 8; exit 9");
  EXPECT_EQ(result.status, 8);
  for (const std::string attempt : {"0", "1"}) {
    EXPECT_EQ(read_file(run_folder(logs) + "/attempt_" + attempt + "/0/stdout.log"), "out 0\n");
  }
}

TEST(LauncherOutput, WrongUseIsNamed) {
  const ScratchFolder folder;
  for (const auto* text : {"4", "-1:1", "0:4", "0:", ":1", "0:1,", "x", ""}) {
    const Finished result = talk({std::string("--tee=") + text});
    EXPECT_EQ(result.status, 2) << text;
    EXPECT_NE(result.err.find("--tee '" + std::string(text) + "': expected"), std::string::npos)
        << result.err;
  }
  EXPECT_EQ(talk({"--local-ranks-filter=x"}).status, 2);
  for (const auto* size : {"100", "4Q", "-5K", "K", "99999999999"}) {
    EXPECT_EQ(talk({std::string("--log-max-size=") + size}).status, 2) << size;
  }
  EXPECT_EQ(talk({"--local-ranks-filter=0,"}).status, 2);
  const Finished file = talk({"--log-dir=" + folder.write("file", "")});
  EXPECT_EQ(file.status, 1);
  EXPECT_NE(file.err.find("cannot make the folder"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::launch
