#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <regex>

#include "launcher_process.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::launch {
namespace {

using Words = std::vector<std::string>;

/// `lockstep run <flags> sh -c <script>`.
Words shell(Words flags, const std::string& script) {
  flags.insert(flags.begin(), "run");
  flags.insert(flags.end(), {"sh", "-c", script});
  return flags;
}

/// A shell command that puts its process id into a file, whole or not at all.
std::string note_pid(const std::string& file) {
  return "echo $$ > " + file + ".new; mv " + file + ".new " + file + "; ";
}

long folders_in(const std::string& path) {
  const std::filesystem::directory_iterator entries(path);
  return std::count_if(begin(entries), end(entries), [](const auto& entry) { return entry.is_directory(); });
}

/// When the orphan reaper of a killed launcher has done its work.
void expect_no_folders(const ScratchFolder& folder) {
  EXPECT_TRUE(eventually([&] { return folders_in(folder.path()) == 0; })) << "its temporary folder is left";
}

int lines_with(const std::string& text, const std::string& part) {
  int count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(Launcher, RanksSucceed) {
  const Finished result =
      launch(shell({"--nproc-per-node=3"}, "echo \"<$RANK of $WORLD_SIZE ${local_rank}>\""));
  EXPECT_EQ(result.status, 0) << result.err;
  for (const auto* line : {"<0 of 3 0>", "<1 of 3 1>", "<2 of 3 2>"})
    EXPECT_EQ(lines_with(result.out, line), 1);
  EXPECT_EQ(lines_with(result.err, "OMP_NUM_THREADS is not set"), 1);
}

TEST(Launcher, OneRankAndSetThreadsNeedNoNotice) {
  EXPECT_EQ(launch({"run", "true"}).err, "");
  EXPECT_EQ(launch({"run", "--nproc-per-node=2", "true"}, {{"OMP_NUM_THREADS", "1"}}).err, "");
}

TEST(Launcher, StandardInputPassesThrough) {
  const ScratchFolder folder;
  const std::string input = folder.write("in", "hello\n");
  LauncherProcess launcher({"run", "cat"}, {}, [&] { dup2(open(input.c_str(), O_RDONLY), STDIN_FILENO); });
  EXPECT_EQ(launcher.wait().out, "hello\n");
}

void close_standard_streams() {
  for (const int number : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) close(number);
}

TEST(Launcher, ClosedStandardStreamsAreDevNullForTheRanks) {
  const ScratchFolder folder;
  const std::string look = "(for n in 0 1 2; do readlink /proc/$$/fd/$n; done) > " + folder.file("streams");
  EXPECT_EQ(LauncherProcess(shell({}, look), {}, close_standard_streams).wait().status, 0);
  EXPECT_EQ(read_file(folder.file("streams")), "/dev/null\n/dev/null\n/dev/null\n");
}

TEST(Launcher, ClosedStandardStreamsLeaveLogFilesAsTheyAre) {
  const ScratchFolder folder;
  const auto command = shell({"--redirects=3", "--log-dir=" + folder.path()}, "echo out; echo err >&2");
  EXPECT_EQ(LauncherProcess(command, {}, close_standard_streams).wait().status, 0);
  std::string found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path())) {
    if (entry.path().extension() == ".log") found += read_file(entry.path());
  }
  EXPECT_NE(found.find("out\n"), std::string::npos);
  EXPECT_NE(found.find("err\n"), std::string::npos);
}

TEST(Launcher, AMissingScriptIsOneErrorAndNotOneOfEachRank) {
  const Finished result = launch({"run", "--nproc-per-node=4", "--max-restarts=2", "absent.py"});
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.err.find("cannot start 'absent.py': no such Python script in this folder"),
            std::string::npos)
      << result.err;
  EXPECT_EQ(result.err.find("FAILED"), std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("can't open file"), std::string::npos) << result.err;
}

TEST(Launcher, OptionsComeFromPetVariables) {
  const Finished result =
      launch(shell({}, "echo $LOCAL_WORLD_SIZE$ROLE_NAME"), {{"PET_NPROC_PER_NODE", "2"}, {"PET_ROLE", "w"}});
  EXPECT_EQ(result.out, "2w\n2w\n");
}

TEST(Launcher, TheExitCodeIsTheFirstFailures) {
  // Ranks that have not been started when one fails are not started any more: it waits for the last one.
  const testing::TemporaryFolder folder;
  const std::string started = (folder / "started").string();
  const std::string script = "[ $RANK = 2 ] && touch " + started + "; [ $RANK = 1 ] || exec sleep 60; " +
                             "until [ -e " + started + " ]; do sleep 0.01; done; exit 7";
  const Finished result = launch(shell({"--nproc-per-node=3"}, script));
  EXPECT_EQ(result.status, 7);
  EXPECT_EQ(lines_with(result.err, "FAILED: rank 1 (local rank 1, pid "), 1) << result.err;
  EXPECT_EQ(lines_with(result.err, ", sh) exited with code 7"), 2) << "first and last: " << result.err;
  EXPECT_EQ(
      lines_with(result.err, "ranks 0, 2 were killed by SIGTERM (Terminated) after they were asked to stop"),
      1)
      << result.err;
}

TEST(Launcher, SignalsOfRanksAreNamed) {
  const Finished crash = launch(shell({}, "kill -SEGV $$"));
  EXPECT_EQ(crash.status, 128 + SIGSEGV);
  EXPECT_NE(crash.err.find("SIGSEGV (Segmentation fault)"), std::string::npos) << crash.err;
  const Finished killed = launch(shell({}, "kill -KILL $$"));
  EXPECT_EQ(killed.status, 137);
  EXPECT_NE(killed.err.find("The launcher did not send it"), std::string::npos) << killed.err;
  EXPECT_EQ(killed.err.find("killed by the kernel's OOM killer"), std::string::npos) << killed.err;
}

TEST(Launcher, ErrorFilesAreQuotedAndBrokenOnesIgnored) {
  const std::string write =
      "printf '%s' '{\"message\": {\"message\": \"ValueError: boom\"}}' > $TORCHELASTIC_ERROR_FILE;";
  const Finished whole = launch(shell({}, write + "exit 3"));
  EXPECT_EQ(whole.status, 3);
  EXPECT_NE(whole.err.find("exited with code 3\n  ValueError: boom\n"), std::string::npos) << whole.err;
  const Finished broken = launch(shell({}, "printf '{\"mess' > $TORCHELASTIC_ERROR_FILE; exit 3"));
  EXPECT_EQ(broken.status, 3);
  EXPECT_NE(broken.err.find("FAILED: rank 0"), std::string::npos);
}

TEST(Launcher, RankThatIgnoresSigtermIsKilled) {
  const ScratchFolder folder;
  const std::string pid = folder.file("pid");
  const Finished result =
      launch(shell({"--nproc-per-node=2", "--shutdown-timeout=0.3"},
                   "if [ $RANK = 1 ]; then while [ ! -e " + pid + " ]; do sleep 0.01; done; exit 5; fi; " +
                       "trap '' TERM; " + note_pid(pid) + "while :; do sleep 0.1; done"));
  EXPECT_EQ(result.status, 5);
  EXPECT_NE(result.err.find("killing them (--shutdown-timeout)"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("SIGKILL (Killed) after it was asked to stop"), std::string::npos) << result.err;
  EXPECT_TRUE(await_end(await_number(pid)));
}

class LauncherSignals : public ::testing::TestWithParam<int> {};

TEST_P(LauncherSignals, AreForwardedAndEndTheJob) {
  const ScratchFolder folder;
  // A child of the shell has its trap until it has become another program: no signal comes before that.
  const std::string until_it_sleeps =
      "until read -r name < /proc/$!/comm && [ \"$name\" = sleep ]; do :; done; ";
  LauncherProcess launcher(shell({}, "trap 'echo got; exit 0' TERM INT HUP QUIT; sleep 1000 & " +
                                         until_it_sleeps + note_pid(folder.file("pid")) + "wait"));
  const pid_t worker = await_number(folder.file("pid"));
  launcher.signal(GetParam());
  const Finished result = launcher.wait();
  EXPECT_EQ(result.status, 128 + GetParam());
  EXPECT_EQ(result.out, "got\n");
  EXPECT_TRUE(await_end(worker));
}

INSTANTIATE_TEST_SUITE_P(All, LauncherSignals, ::testing::Values(SIGTERM, SIGINT, SIGHUP, SIGQUIT));

/// Programs take a second signal for impatience.
TEST(Launcher, SignalIsForwardedOnce) {
  const ScratchFolder folder;
  LauncherProcess launcher(
      shell({}, "n=0; trap 'n=$((n+1))' TERM; " + note_pid(folder.file("pid")) +
                    "while [ $n = 0 ]; do :; done; for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.03; done; "
                    "echo $n; exit 0"));
  await_number(folder.file("pid"));
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.wait().out, "1\n");
}

TEST(Launcher, SecondSignalKillsAtOnce) {
  const ScratchFolder folder;
  LauncherProcess launcher(shell({"--shutdown-timeout=1000"}, "trap 'echo $$ > " + folder.file("got") +
                                                                  "' TERM; " + note_pid(folder.file("pid")) +
                                                                  "while :; do sleep 0.01; done"));
  const pid_t worker = await_number(folder.file("pid"));
  launcher.signal(SIGTERM);
  await_number(folder.file("got"));
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.wait().status, 128 + SIGTERM);
  EXPECT_TRUE(await_end(worker));
}

TEST(Launcher, UserSignalsAreOnlyForwarded) {
  const ScratchFolder folder;
  LauncherProcess launcher(
      shell({}, "trap 'exit 85' USR1; " + note_pid(folder.file("pid")) + "while :; do sleep 0.01; done"));
  await_number(folder.file("pid"));
  launcher.signal(SIGUSR1);
  EXPECT_EQ(launcher.wait().status, 85) << "the rank decided how to end";
}

/// The ranks have ended, and the launcher is about to.
TEST(Launcher, LateUserSignalsDoNotEndTheJob) {
  for (const int number : {SIGUSR1, SIGUSR2}) {
    const ScratchFolder folder;
    LauncherProcess launcher(shell({}, "trap '' USR1 USR2; " + note_pid(folder.file("pid")) + "sleep 0.05"));
    await_number(folder.file("pid"));
    while (!is_gone(launcher.pid())) launcher.signal(number);
    EXPECT_EQ(launcher.wait().status, 0) << number;
  }
}

TEST(Launcher, RanksInheritNothingButTheStandardStreams) {
  LauncherProcess launcher(shell({}, "echo $(ls /proc/self/fd)"), {}, [] { dup2(STDOUT_FILENO, 9); });
  EXPECT_EQ(launcher.wait().out, "0 1 2 3\n") << "3 is the folder that ls reads";
}

TEST(Launcher, EndsThoughItsReaperIsStopped) {
  const ScratchFolder folder;
  const std::string stop_the_reaper =
      "for p in /proc/[0-9]*; do [ \"$(cat $p/comm 2> /dev/null)\" = lockstep-reaper ] && "
      "grep -q \"^PPid:.$PPID\\$\" $p/status && kill -STOP ${p#/proc/}; done; ";
  LauncherProcess launcher(shell({}, stop_the_reaper + note_pid(folder.file("pid")) + "sleep 100"));
  await_number(folder.file("pid"));
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.wait().status, 128 + SIGTERM);
}

TEST(Launcher, IgnoredHangUpStaysIgnored) {
  const ScratchFolder folder;
  LauncherProcess launcher(shell({}, note_pid(folder.file("pid")) + "while [ ! -e " + folder.file("go") +
                                         " ]; do sleep 0.01; done"),
                           {}, [] { std::signal(SIGHUP, SIG_IGN); });
  const pid_t worker = await_number(folder.file("pid"));
  launcher.signal(SIGHUP);
  kill(worker, SIGHUP);
  folder.write("go", "");
  EXPECT_EQ(launcher.wait().status, 0);
}

TEST(Launcher, ItsDeathLeavesNothing) {
  const ScratchFolder folder;
  const std::string script =
      "f=" + folder.path() + "/pid$RANK; " + note_pid("$f") + "while :; do sleep 0.05; done";
  LauncherProcess launcher(shell({"--nproc-per-node=2"}, script), {{"TMPDIR", folder.path()}});
  const pid_t first = await_number(folder.file("pid0"));
  const pid_t second = await_number(folder.file("pid1"));
  launcher.signal(SIGKILL);
  EXPECT_EQ(launcher.wait().status, -SIGKILL);
  EXPECT_TRUE(await_end(first));
  EXPECT_TRUE(await_end(second));
  expect_no_folders(folder);
}

/// Starts a process that outlives its parent, in the rank's process group or (`setsid`) in a session of its
/// own.
std::string left_behind(const ScratchFolder& folder, const std::string& prefix) {
  const std::string file = folder.file("child");
  return prefix + " sh -c '" + note_pid(file) + "exec sleep 1000' > /dev/null 2>&1 & while [ ! -e " + file +
         " ]; do sleep 0.01; done; ";
}

/// "setsid -f" forks: its child has lost its parent by the time it begins.
class Grandchildren : public ::testing::TestWithParam<const char*> {};

TEST_P(Grandchildren, EndWithTheLauncher) {
  const ScratchFolder folder;
  LauncherProcess launcher(shell({}, left_behind(folder, GetParam()) + "wait; exec sleep 1000"),
                           {{"TMPDIR", folder.path()}});
  const pid_t grandchild = await_number(folder.file("child"));
  launcher.signal(SIGKILL);
  EXPECT_EQ(launcher.wait().status, -SIGKILL);
  EXPECT_TRUE(await_end(grandchild));
  expect_no_folders(folder);
}

TEST_P(Grandchildren, EndWithTheLauncherWhereTheSystemHasNoPidfds) {
  const ScratchFolder folder;
  LauncherProcess launcher(shell({}, left_behind(folder, GetParam()) + "wait; exec sleep 1000"),
                           {{"TMPDIR", folder.path()}}, forbid_pidfds);
  const pid_t grandchild = await_number(folder.file("child"));
  launcher.signal(SIGKILL);
  EXPECT_EQ(launcher.wait().status, -SIGKILL);
  EXPECT_TRUE(await_end(grandchild));
  expect_no_folders(folder);
}

TEST_P(Grandchildren, OfALauncherWithinARankEndWithTheOuterOne) {
  const ScratchFolder folder;
  const std::string inner = folder.write("inner", left_behind(folder, GetParam()) + "exec sleep 1000");
  LauncherProcess launcher({"run", LOCKSTEP_LAUNCHER, "run", "sh", inner}, {{"TMPDIR", folder.path()}});
  const pid_t grandchild = await_number(folder.file("child"));
  launcher.signal(SIGKILL);
  EXPECT_EQ(launcher.wait().status, -SIGKILL);
  EXPECT_TRUE(await_end(grandchild));
  expect_no_folders(folder);
}

TEST_P(Grandchildren, EndWithTheJob) {
  for (const int code : {0, 4}) {
    const ScratchFolder folder;
    const Finished result =
        launch(shell({}, left_behind(folder, GetParam()) + "exit " + std::to_string(code)));
    EXPECT_EQ(result.status, code) << result.err;
    EXPECT_TRUE(is_gone(await_number(folder.file("child"))));
  }
}

TEST_P(Grandchildren, EndBeforeARestart) {
  const ScratchFolder folder;
  const Finished result =
      launch(shell({"--max-restarts=1", "--restart-backoff=0"},
                   "if [ $TORCHELASTIC_RESTART_COUNT = 1 ]; then ! kill -0 $(cat " + folder.file("child") +
                       "); exit; fi; " + left_behind(folder, GetParam()) + "exit 4"));
  EXPECT_EQ(result.status, 0) << result.err;
}

INSTANTIATE_TEST_SUITE_P(All, Grandchildren,
                         ::testing::Values("", "setsid", "setsid -f", "setsid -f setsid -f"));

/// A process that the test ends.
struct Daemon {
  explicit Daemon(const ScratchFolder& folder) : pid(await_number(folder.file("child"))) {}
  ~Daemon() { kill(pid, SIGKILL); }
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;
  bool lives() const { return !is_gone(pid); }
  const pid_t pid;
};

TEST(Launcher, DaemonsAreKeptOnRequest) {
  const ScratchFolder folder;
  const Finished end = launch(shell({"--keep-daemons"}, left_behind(folder, "setsid -f") + "exit 4"));
  const Daemon daemon(folder);
  EXPECT_EQ(end.status, 4);
  EXPECT_TRUE(daemon.lives());
}

TEST(Launcher, OtherProcessesEndDespiteKeepDaemons) {
  const ScratchFolder folder;
  launch(shell({"--keep-daemons"}, left_behind(folder, "") + "exit 4"));
  EXPECT_FALSE(Daemon(folder).lives());
}

TEST(Launcher, DaemonsSurviveTheLaunchersDeathOnRequest) {
  const ScratchFolder folder;
  LauncherProcess launcher(
      shell({"--keep-daemons"}, left_behind(folder, "setsid -f") + "wait; exec sleep 1000"),
      {{"TMPDIR", folder.path()}});
  const Daemon daemon(folder);
  launcher.signal(SIGKILL);
  EXPECT_EQ(launcher.wait().status, -SIGKILL);
  expect_no_folders(folder);
  EXPECT_TRUE(daemon.lives());
}

/// A debugger that waits until a line of the rank has passed through the launcher.
TEST(Launcher, RanksAreServedWhileADebuggerInspectsThem) {
  const ScratchFolder folder;
  const auto wait_for = [&](const std::string& name) {
    return "while [ ! -e " + folder.file(name) + " ]; do sleep 0.01; done; ";
  };
  folder.write("eu-stack",
               "#!/bin/sh\n: > " + folder.file("asked") + "\n" + wait_for("go") + "echo '#0 answered'\n",
               true);
  LauncherProcess launcher(
      shell({"--tee=1"}, note_pid(folder.file("pid")) + wait_for("asked") + "echo line; exec sleep 100"),
      {{"PATH", folder.path() + ":/usr/bin:/bin"}});
  await_number(folder.file("pid"));
  launcher.signal(SIGRTMIN + 4);
  EXPECT_TRUE(eventually([&] { return lines_with(launcher.out(), "line") == 1; }));
  folder.write("go", "");
  EXPECT_TRUE(eventually([&] { return lines_with(launcher.err(), "stacks of rank 0") == 1; }));
  launcher.signal(SIGTERM);
  const Finished end = launcher.wait();
  EXPECT_EQ(lines_with(end.err, "#0 answered"), 1) << end.err;
}

TEST(Launcher, ProgramsThatCannotStartAreNamed) {
  const Finished absent =
      launch({"run", "--nproc-per-node=2", "/no/such/program"}, {{"OMP_NUM_THREADS", "1"}});
  EXPECT_EQ(absent.status, 127);
  EXPECT_NE(absent.err.find("cannot start '/no/such/program': no such program"), std::string::npos)
      << absent.err;
  EXPECT_EQ(lines_with(absent.err, "\n"), 1) << absent.err;
  const ScratchFolder folder;
  const Finished plain = launch({"run", folder.write("plain", "text")});
  EXPECT_EQ(plain.status, 126);
  EXPECT_NE(plain.err.find("it is not executable"), std::string::npos) << plain.err;
  const Finished orphaned = launch({"run", folder.write("script", "#!/no/such/shell\n", true)});
  EXPECT_EQ(orphaned.status, 127);
  EXPECT_NE(orphaned.err.find("the interpreter"), std::string::npos) << orphaned.err;
}

TEST(Launcher, RestartsTheWholeGroup) {
  const Finished result =
      launch(shell({"--nproc-per-node=2", "--max-restarts=2"},
                   "echo $TORCHELASTIC_RESTART_COUNT:$TORCHELASTIC_MAX_RESTARTS:$RANK; "
                   "[ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0; [ $RANK = 1 ] && exit 9; "
                   "exec sleep 60"));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(lines_with(result.out, "2:2:0\n"), 1) << result.out;
  EXPECT_EQ(lines_with(result.out, "2:2:1\n"), 1) << result.out;
  EXPECT_EQ(lines_with(result.err, "FAILED: rank 1"), 2);
  EXPECT_EQ(lines_with(result.err, "restart 2 of 2"), 1);
}

TEST(Launcher, RestartsAreLimited) {
  const Finished result = launch(shell({"--max-restarts=1"}, "exit 6"));
  EXPECT_EQ(result.status, 6);
  EXPECT_EQ(lines_with(result.err, "FAILED: rank 0"), 2);
}

TEST(Launcher, RemovesItsTemporaryFolder) {
  const ScratchFolder folder;
  const Finished result =
      launch(shell({}, "test -d ${TORCHELASTIC_ERROR_FILE%/*}"), {{"TMPDIR", folder.path()}});
  EXPECT_EQ(result.status, 0) << "the folder of the error file is there while ranks run";
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Launcher, ShowsWhatItWouldDo) {
  const Finished result = launch({"run", "--dry-run", "--nproc-per-node=2", "./prog", "a b"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(lines_with(result.out, "rank 1: ./prog 'a b'\n"), 1) << result.out;
  EXPECT_EQ(lines_with(result.out, "  WORLD_SIZE=2\n"), 2);
}

TEST(Launcher, WrongUseEndsWithTwo) {
  for (const Words& words : {Words{},
                             {"walk"},
                             {"run"},
                             {"run", "--nprocs", "2", "true"},
                             {"run", "--n", "2", "true"},
                             {"run", "--nproc-per-node=0", "true"},
                             {"run", "--nproc-per-node=65537", "true"},
                             {"run", "--max-restarts=-1", "true"},
                             {"run", "--nnodes=0", "true"},
                             {"run", "--tee=4", "true"}}) {
    const Finished result = launch(words);
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_EQ(result.err.substr(0, 8), "lockstep");
    EXPECT_EQ(result.out, "");
  }
}

TEST(Launcher, HelpAndVersion) {
  EXPECT_EQ(launch({"--help"}).status, 0);
  const std::string versions = launch({"--version"}).out;
  EXPECT_TRUE(std::regex_match(versions,
                               std::regex("lockstep " LOCKSTEP_VERSION "\nLibTorch 2\\.11\\.\\d+\n"
                                          "NCCL (\\d+\\.\\d+\\.\\d+|not built)\nArrow \\d+\\.\\d+\\.\\d+\n")))
      << versions;
  const Finished help = launch({"run", "--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_NE(help.out.find("--nproc-per-node N"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::launch
