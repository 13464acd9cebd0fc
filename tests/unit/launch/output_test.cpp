#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

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
    EXPECT_TRUE(has_line(result.out, "[trainer" + rank + "]:out " + rank)) << result.out;
    EXPECT_TRUE(has_line(result.out, "[trainer" + rank + "]:half")) << result.out;
    EXPECT_TRUE(has_line(result.err, "[trainer" + rank + "]:err " + rank)) << result.err;
  }
}

TEST(LauncherOutput, TeeKeepsFilesWhereThereIsALogFolder) {
  const ScratchFolder logs;
  const Finished result = talk({"--tee=1", "--log-dir=" + logs.path()});
  EXPECT_TRUE(has_line(result.out, "[default1]:out 1"));
  EXPECT_EQ(read_file(run_folder(logs) + "/attempt_0/1/stdout.log"), "out 1\n");
  EXPECT_TRUE(has_line(result.err, "err 1"));
}

TEST(LauncherOutput, TheFilterHidesOtherRanksFromTheConsole) {
  EXPECT_EQ(talk({"--local-ranks-filter=1"}).out, "out 1\n");
  const ScratchFolder logs;
  const Finished result = talk({"--local-ranks-filter=1", "--tee=3", "--log-dir=" + logs.path()});
  EXPECT_EQ(result.out, "[default1]:out 1\n");
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
    line += "]:a";
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
  EXPECT_EQ(result.out.size(), 100000U * (11 + std::string("[default0]:").size()));
}

TEST(LauncherOutput, LastOutputPrecedesTheReport) {
  const Finished result = talk({"--tee=2"}, "exit 3");
  EXPECT_EQ(result.status, 3);
  EXPECT_LT(result.err.find("]:err "), result.err.find("FAILED")) << result.err;
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

TEST(LauncherOutput, RedirectsWithoutALogFolderGoBelowTmpdir) {
  const ScratchFolder folder;
  const Finished result =
      launch({"run", "-r3", "sh", "-c", "echo out; echo err >&2"}, {{"TMPDIR", folder.path()}});
  EXPECT_EQ(result.status, 0) << result.err;
  const std::string run = run_folder(folder);
  EXPECT_EQ(result.err, "lockstep run: log files are in " + run + "\n");
  EXPECT_EQ(read_file(run + "/attempt_0/0/stdout.log"), "out\n");
  EXPECT_EQ(read_file(run + "/attempt_0/0/stderr.log"), "err\n");
}

TEST(LauncherOutput, DevNullKeepsNoFiles) {
  const ScratchFolder folder;
  const Finished result =
      launch({"run", "--log-dir=/dev/null", "-r3", "sh", "-c", "echo out"}, {{"TMPDIR", folder.path()}});
  EXPECT_EQ(result.out, "out\n");
  EXPECT_EQ(result.err, "");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(LauncherOutput, TwoDigitRanksAreRedirected) {
  const ScratchFolder logs;
  const Finished result = launch({"run", "--nproc-per-node=12", "-r", "11:1,40:3", "--log-dir", logs.path(),
                                  "sh", "-c", "[ $RANK -lt 10 ] || echo $RANK"},
                                 {{"OMP_NUM_THREADS", "1"}});
  EXPECT_EQ(result.out, "10\n");
  EXPECT_EQ(read_file(run_folder(logs) + "/attempt_0/11/stdout.log"), "11\n");
}

TEST(LauncherOutput, FiltersCopyLinesToAFile) {
  const ScratchFolder logs;
  const Finished result = talk({"--tee=3", "--log-dir=" + logs.path(), "--duplicate-stdout-filters=a,,b,pple",
                                "--duplicate-stderr-filters", "err 1"},
                               "echo apple $RANK; echo a,b; echo ab");
  EXPECT_EQ(result.status, 0) << result.err;
  const std::string out = read_file(run_folder(logs) + "/attempt_0/filtered_stdout.log");
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 4) << out;
  EXPECT_TRUE(has_line(out, "[default1]:apple 1")) << out;
  EXPECT_TRUE(has_line(out, "[default0]:a,b")) << out;
  EXPECT_EQ(read_file(run_folder(logs) + "/attempt_0/filtered_stderr.log"), "[default1]:err 1\n");
}

TEST(LauncherOutput, ThePrefixIsTheUsers) {
  const Finished result = launch({"run", "--tee=1", "--role=w", "sh", "-c", "echo hi"},
                                 {{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "<${role_name}:$rank>"}});
  EXPECT_EQ(result.out, "<w:0>hi\n");
}

TEST(LauncherOutput, LogFilesStayBelowTheirLargestSize) {
  for (const auto* flag : {"--tee=1", "-r1"}) {
    const ScratchFolder logs;
    const Finished result = launch({"run", flag, "--log-max-size=8K", "--log-dir", logs.path(), "sh", "-c",
                                    "seq -f 'line %.0f' 0 3999"});
    EXPECT_EQ(result.status, 0) << result.err;
    const std::string file = run_folder(logs) + "/attempt_0/0/stdout.log";
    const std::string before = read_file(file + ".1"), text = read_file(file);
    EXPECT_TRUE((before + text).ends_with("line 3998\nline 3999\n"));
    EXPECT_TRUE(before.ends_with('\n')) << before.substr(before.size() - 20);
    for (const auto& each : {before, text}) {
      EXPECT_TRUE(each.starts_with("line ")) << each.substr(0, 20);
      EXPECT_LE(each.size(), 8U * 1024 + std::string("line 3999\n").size());
    }
    EXPECT_GT(before.size(), 8U * 1024 - std::string("line 3999\n").size()) << "as full as it can be";
    EXPECT_FALSE(std::filesystem::exists(file + ".2"));
  }
}

TEST(LauncherOutput, ALogFileAtTheLimitOfSizesEndsNobody) {
  const ScratchFolder folder;
  const std::string script = "for i in 1 2 3 4; do printf '%01000d\\n' $i; done";
  LauncherProcess launcher({"run", "--log-dir", folder.path(), "--tee", "1", "sh", "-c", script}, {}, [] {
    // The test's own file of the output has this limit, too.
    const int discard = open("/dev/null", O_WRONLY);
    dup2(discard, STDOUT_FILENO);
    const rlimit limit{2048, 2048};
    setrlimit(RLIMIT_FSIZE, &limit);
  });
  const Finished end = launcher.wait();
  EXPECT_EQ(end.status, 0);
  EXPECT_NE(end.err.find("ends here"), std::string::npos) << end.err;
}

TEST(LauncherOutput, FailedWriteIsReported) {
  LauncherProcess job({"run", "--tee", "1", "echo", "hi"}, {}, [] {
    const int full = open("/dev/full", O_WRONLY);
    dup2(full, STDOUT_FILENO);
  });
  const Finished end = job.wait();
  EXPECT_EQ(end.status, 0);
  EXPECT_NE(end.err.find("cannot write to standard output: No space left on device"), std::string::npos)
      << end.err;
}

TEST(LauncherOutput, ReportHasTheLastLinesOfAFailedRank) {
  const std::string script =
      "for i in 1 2 3; do echo rank $RANK line $i >&2; done; [ $RANK = 0 ] && exit 3; exec sleep 60";
  const Finished relayed = talk({"--tee=2", "--report-lines=2"}, script);
  EXPECT_NE(relayed.err.find("  The end of its standard error:\n    rank "), std::string::npos)
      << relayed.err;
  EXPECT_NE(relayed.err.find("    rank 0 line 2\n    rank 0 line 3\n"), std::string::npos) << relayed.err;
  EXPECT_EQ(relayed.err.find("    rank 0 line 1\n"), std::string::npos) << relayed.err;
  EXPECT_EQ(talk({"--report-lines=0", "--tee=2"}, script).err.find("The end of"), std::string::npos);
  EXPECT_EQ(talk({}, script).err.find("The end of"), std::string::npos) << "they were on the console already";
}

TEST(LauncherOutput, ABrokenErrorFileIsNamed) {
  const Finished result = talk({}, "echo '{' > $TORCHELASTIC_ERROR_FILE; exit 3");
  EXPECT_EQ(result.status, 3);
  EXPECT_NE(result.err.find("error.json (damaged: not JSON in torchrun's format)"), std::string::npos)
      << result.err;
  const Finished fifo = talk({}, "mkfifo $TORCHELASTIC_ERROR_FILE; exit 3");
  EXPECT_EQ(fifo.status, 3);
  EXPECT_NE(fifo.err.find("not a regular file"), std::string::npos) << fifo.err;
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
