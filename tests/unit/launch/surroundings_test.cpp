// What the launcher finds around it: a folder for temporary files that cannot be used, children of others,
// programs that are not ready, daemons, the job of a scheduler.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "launcher_process.hpp"

namespace lockstep::launch {
namespace {

using Words = std::vector<std::string>;

/// `lockstep run <flags> sh -c <script>`.
Words job_of(Words flags, const std::string& script) {
  flags.insert(flags.begin(), "run");
  flags.insert(flags.end(), {"sh", "-c", script});
  return flags;
}

/// A shell command that puts its process id into a file, whole or not at all.
std::string tell_pid(const std::string& file) {
  return "echo $$ > " + file + ".new; mv " + file + ".new " + file + "; ";
}

::testing::AssertionResult has_once(const std::string& text, const std::string& part) {
  const auto at = text.find(part);
  if (at != std::string::npos && text.find(part, at + 1) == std::string::npos)
    return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "'" << part << "' is not once in:\n" << text;
}

/// A process that the test ends.
struct Survivor {
  explicit Survivor(const std::string& file) : pid(await_number(file)) {}
  ~Survivor() { kill(pid, SIGKILL); }
  Survivor(const Survivor&) = delete;
  Survivor& operator=(const Survivor&) = delete;
  const pid_t pid;
};

/// As Slurm's --signal, which may come while a program still starts: without a handler it would end.
TEST(Surroundings, AUserSignalWaitsForItsHandler) {
  const ScratchFolder folder;
  LauncherProcess launcher(job_of({}, tell_pid(folder.file("pid")) + "sleep 1; trap 'exit 85' USR1; "
                                                                     "while :; do sleep 0.01; done"));
  await_number(folder.file("pid"));
  launcher.signal(SIGUSR1);
  const Finished end = launcher.wait();
  EXPECT_EQ(end.status, 85) << end.err;
  EXPECT_TRUE(has_once(end.err, "SIGUSR1 is held back until rank 0 has a handler for it"));
}

/// A shell blocks all signals around the start of each child, of which this one starts many.
TEST(Surroundings, AUserSignalDoesNotEndAProgramThatBlocksItForAMoment) {
  const ScratchFolder folder;
  LauncherProcess launcher(job_of({}, tell_pid(folder.file("pid")) +
                                          "i=0; while [ $i -lt 300 ]; do /bin/true; i=$((i+1)); done; "
                                          "trap 'exit 85' USR1; while :; do sleep 0.01; done"));
  await_number(folder.file("pid"));
  for (int i = 0; i < 5; ++i) {
    launcher.signal(SIGUSR1);
    usleep(20'000);
  }
  const Finished end = launcher.wait();
  EXPECT_EQ(end.status, 85) << end.err;
}

/// It has no handler, and takes the signal by sigwait.
TEST(Surroundings, AUserSignalReachesAProgramThatBlocksItForGood) {
  if (std::system("command -v python3 > /dev/null") != 0) GTEST_SKIP() << "no python3";
  const ScratchFolder folder;
  LauncherProcess launcher(job_of({},
                                  "exec python3 -c \"import os, signal, sys; "
                                  "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1}); "
                                  "open('" +
                                      folder.file("new") + "', 'w').write(str(os.getpid())); os.rename('" +
                                      folder.file("new") + "', '" + folder.file("pid") +
                                      "'); signal.sigwait({signal.SIGUSR1}); sys.exit(85)\""));
  await_number(folder.file("pid"));
  launcher.signal(SIGUSR1);
  const Finished end = launcher.wait();
  EXPECT_EQ(end.status, 85) << end.err;
  EXPECT_EQ(end.err.find("is held back"), std::string::npos) << end.err;
}

/// The daemon leaves its rank's session only after the rank's end.
TEST(Surroundings, ADaemonThatHasJustBegunNeitherDelaysTheEndNorDies) {
  const ScratchFolder folder;
  const auto begin = std::chrono::steady_clock::now();
  const Finished end = launch(job_of({"--keep-daemons"}, "trap '' TERM; (sleep 0.2; exec setsid sh -c '" +
                                                             tell_pid(folder.file("child")) +
                                                             "exec sleep 1000') > /dev/null 2>&1 & exit 4"));
  const Survivor daemon(folder.file("child"));
  EXPECT_EQ(end.status, 4);
  EXPECT_FALSE(is_gone(daemon.pid));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15))
      << "not the shutdown timeout of 30 s";
}

/// `service & exec lockstep run`: the service is the launcher's child, and none of the job's.
TEST(Surroundings, ChildrenThatItHadBeforeAreNotItsJobs) {
  const ScratchFolder folder;
  const std::string service = "(trap ': > " + folder.file("asked") + "' TERM; " +
                              "while :; do sleep 0.05; done) > /dev/null 2>&1 & echo $! > " +
                              folder.file("new") + "; mv " + folder.file("new") + " " + folder.file("child") +
                              "; ";
  const std::string job =
      std::string("exec ") + LOCKSTEP_LAUNCHER + " run --max-restarts 1 --restart-backoff 0 sh -c '" +
      "setsid sleep 1000 > /dev/null 2>&1 & echo $! > " + folder.file("own") + "; exit 4'";
  LauncherProcess launcher({"-c", service + job}, {}, {}, "/bin/sh");
  const Survivor daemon(folder.file("child"));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(launcher.wait().status, 4);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  EXPECT_FALSE(is_gone(daemon.pid));
  EXPECT_FALSE(std::filesystem::exists(folder.file("asked"))) << "the service got SIGTERM";
  EXPECT_TRUE(is_gone(std::stoi(read_file(folder.file("own"))))) << "what the job left behind has ended";
}

/// As Python and torchrun do.
TEST(Surroundings, AFolderForTemporaryFilesThatCannotBeUsedIsReplaced) {
  const Finished missing =
      launch(job_of({}, "echo $TORCHELASTIC_ERROR_FILE"), {{"TMPDIR", "/no/such/folder"}});
  EXPECT_EQ(missing.status, 0) << missing.err;
  EXPECT_TRUE(
      has_once(missing.err, "temporary files go to '/tmp': '/no/such/folder' cannot be used (No such file"));
  EXPECT_TRUE(missing.out.starts_with("/tmp/lockstep_")) << missing.out;
  // It is there, but takes no files.
  const Finished full = launch({"run", "true"}, {{"TMPDIR", "/sys/kernel"}});
  EXPECT_EQ(full.status, 0) << full.err;
  EXPECT_TRUE(has_once(full.err, "temporary files go to '/tmp'"));
}

TEST(Surroundings, NamesItsLogFolderAfterTheSlurmJob) {
  const ScratchFolder folder;
  launch({"run", "--standalone", "--log-dir", folder.path(), "true"}, {{"SLURM_JOB_ID", "4711"}});
  launch({"run", "--log-dir", folder.path(), "true"}, {{"SLURM_JOB_ID", "4712"}});
  std::string names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    names += entry.path().filename().string() + " ";
  EXPECT_TRUE(has_once(names, "4712_"));
  EXPECT_EQ(names.find("none_"), std::string::npos) << names;
}

}  // namespace
}  // namespace lockstep::launch
