#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "agent/heartbeat_monitor.hpp"
#include "core/runtime/heartbeat_file.hpp"
#include "agent/stack_dump.hpp"
#include "failure/hang.hpp"
#include "launcher_process.hpp"
#include "lockstep/core/error.hpp"
#include "process/process_facts.hpp"
#include "process/words.hpp"
#include "rendezvous/restart_policy.hpp"

namespace lockstep::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

RestartPolicy::Decision fails(RestartPolicy& policy, int lived, std::optional<std::uint64_t> step) {
  return policy.after(seconds(lived), step);
}

TEST(RestartPolicy, PausesDoubleAfterShortLives) {
  RestartPolicy policy(20, seconds(1));
  for (const int pause : {1, 2, 4, 8, 16, 30, 30})
    EXPECT_EQ(fails(policy, 3, std::nullopt).pause, seconds(pause));
  EXPECT_EQ(fails(policy, 10, std::nullopt).pause, seconds(0)) << "it lived long enough";
  EXPECT_EQ(fails(policy, 3, std::nullopt).pause, seconds(1)) << "and it begins anew";
  RestartPolicy eager(2, seconds(0));
  EXPECT_EQ(fails(eager, 0, std::nullopt).pause, seconds(0));
}

TEST(RestartPolicy, ProgramsWithoutHeartbeatUseAllRestarts) {
  RestartPolicy policy(5, seconds(1));
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(fails(policy, 0, std::nullopt).again);
  const auto last = fails(policy, 0, std::nullopt);
  EXPECT_FALSE(last.again);
  EXPECT_EQ(last.reason, "");
}

TEST(RestartPolicy, GivesUpAfterThreeAttemptsWithoutProgress) {
  RestartPolicy policy(9, seconds(1));
  EXPECT_TRUE(fails(policy, 5, 10).again) << "ten steps are progress";
  EXPECT_TRUE(fails(policy, 5, 10).again);
  EXPECT_TRUE(fails(policy, 5, 8).again);
  const auto last = fails(policy, 5, 10);
  EXPECT_FALSE(last.again);
  EXPECT_EQ(
      last.reason,
      "3 attempts in a row got no further than step 10: the job is not restarted, although 6 restart(s) "
      "are left");
}

TEST(RestartPolicy, WithoutPausesTheNumberOfRestartsAloneDecides) {
  RestartPolicy policy(9, seconds(0));
  for (int i = 0; i < 9; ++i) EXPECT_TRUE(fails(policy, 0, 1).again) << i;
  EXPECT_FALSE(fails(policy, 0, 1).again);
}

TEST(RestartPolicy, ProgressAndLongLivesForgive) {
  RestartPolicy policy(99, seconds(1));
  for (std::uint64_t step = 1; step < 20; ++step) EXPECT_TRUE(fails(policy, 5, step).again);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(fails(policy, i % 2 == 0 ? 61 : 5, 3).again) << i;
}

TEST(ReadableStack, IsForPeople) {
  EXPECT_EQ(
      readable_stack("thread 7 (x):\n/usr/lib/libx.so.6(_ZN3foo3barEi+0x1f)[0x7f00]\n./prog(+0x4e)[0x55]\n"
                     "prog(main+0x86)[0x5]\nword\x1b[31m\n"),
      "thread 7 (x):\n  foo::bar(int)+0x1f in libx.so.6\n  prog+0x4e\n  main+0x86 in prog\nword[31m\n");
  EXPECT_EQ(readable_stack("a(b\n)[0x\n((((\n+)[0x"), "a(b\n)[0x\n((((\n+)[0x\n");
}

TEST(ProcessFacts, AreThoseOfTheProcess) {
  EXPECT_TRUE(is_ours(getpid()));
  EXPECT_FALSE(is_ours(0x7fffffff));
  EXPECT_FALSE(SignalMasks(getpid()).handles(SIGRTMAX - 1));
  std::signal(SIGRTMAX - 1, [](int) {});
  std::signal(SIGRTMAX - 2, SIG_IGN);
  const SignalMasks masks(getpid());
  EXPECT_TRUE(masks.handles(SIGRTMAX - 1));
  EXPECT_FALSE(masks.blocks(SIGRTMAX - 1));
  EXPECT_FALSE(masks.ignores(SIGRTMAX - 1));
  EXPECT_TRUE(masks.ignores(SIGRTMAX - 2));
  EXPECT_FALSE(SignalMasks(0x7fffffff).handles(SIGRTMAX - 1));
  EXPECT_NE(program_of(getpid()).find("_test"), std::string::npos);
  EXPECT_NE(threads_in_kernel(getpid()).find("thread " + std::to_string(getpid())), std::string::npos);
}

TEST(Debugger, IsTheFirstThatIsInstalled) {
  const ScratchFolder folder;
  EXPECT_FALSE(debugger_for(getpid(), folder.path()));
  folder.write("gdb", "#!/bin/sh\n", true);
  EXPECT_EQ(debugger_for(getpid(), "/absent:" + folder.path())->front(), folder.file("gdb"));
  folder.write("eu-stack", "#!/bin/sh\n", true);
  EXPECT_EQ(debugger_for(getpid(), folder.path())->front(), folder.file("eu-stack"));
}

/// With a debugger of the test's own, so that no real one is needed.
class ForeignRank : public ::testing::Test {
 protected:
  ForeignRank() : pid_(fork()) {
    if (pid_ != 0) return;
    setpgid(0, 0);
    for (;;) pause();
  }
  ~ForeignRank() override {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  void ask(const std::string& search_path) {
    dump_.ask({{4, pid_, folder_.file("heartbeat")}}, {{"PATH", search_path}}, std::nullopt, start_);
  }
  /// What is printed when the dump is worked on at that time; "": it is not over.
  std::string printed(std::chrono::seconds after) {
    const auto answer = dump_.work(start_ + after);
    return answer ? answer->text : "";
  }
  std::string stacks(const std::string& search_path) {
    ask(search_path);
    std::string text;
    EXPECT_TRUE(eventually([&] { return !(text = printed(seconds(0))).empty(); }));
    return text;
  }
  std::string head() const { return "lockstep run: stacks of rank 4 (pid " + std::to_string(pid_) + "):\n"; }

  ScratchFolder folder_;
  StackDump dump_;
  const StackDump::Time start_{};
  pid_t pid_;
};

TEST_F(ForeignRank, IsInspectedWithADebugger) {
  folder_.write("eu-stack", "#!/bin/sh\necho \"#0 of $2\"\n", true);
  EXPECT_EQ(stacks(folder_.path() + ":/usr/bin:/bin"), head() + "  #0 of " + std::to_string(pid_) + "\n");
}

TEST_F(ForeignRank, IsReleasedIfTheDebuggerHangs) {
  folder_.write("eu-stack",
                "#!/bin/sh\ntrap 'echo went; exit' TERM\n: > " + folder_.file("ready") +
                    "\nwhile :; do sleep 0.01; done\n",
                true);
  ask(folder_.path() + ":/usr/bin:/bin");
  EXPECT_EQ(printed(seconds(9)), "");
  EXPECT_TRUE(eventually([&] { return std::filesystem::exists(folder_.file("ready")); }));
  EXPECT_EQ(printed(seconds(10)), "") << "it is told to end";
  std::string text;
  EXPECT_TRUE(eventually([&] { return !(text = printed(seconds(10))).empty(); }));
  EXPECT_EQ(text, head() + "  went\n");
}

TEST_F(ForeignRank, IsInspectedInTheKernelIfTheDebuggerIsKilled) {
  folder_.write("eu-stack", "#!/bin/sh\ntrap '' TERM\nwhile :; do sleep 0.01; done\n", true);
  ask(folder_.path() + ":/usr/bin:/bin");
  EXPECT_EQ(printed(seconds(10)), "");
  const std::string text = printed(seconds(11));
  EXPECT_NE(text.find("the debugger printed nothing"), std::string::npos) << text;
  EXPECT_NE(text.find("thread " + std::to_string(pid_)), std::string::npos) << text;
}

TEST_F(ForeignRank, IsInspectedInTheKernelWithoutADebugger) {
  const std::string text = stacks("/absent");
  EXPECT_NE(text.find("no debugger is installed"), std::string::npos) << text;
  EXPECT_NE(text.find("thread " + std::to_string(pid_)), std::string::npos) << text;
}

TEST_F(ForeignRank, IsInspectedOnceForAllRequesters) {
  ask("/absent");
  dump_.ask({}, {}, 7, start_);
  const auto answer = dump_.work(start_);
  ASSERT_TRUE(answer);
  EXPECT_TRUE(answer->here);
  EXPECT_EQ(answer->nodes, std::set<std::int64_t>{7});
  EXPECT_TRUE(answer->text.starts_with(head())) << answer->text;
  EXPECT_EQ(dump_.deadline(), StackDump::Time::max());
}

/// A heartbeat file that names a process which would die of the signal.
TEST_F(ForeignRank, IsNeverSentASignalThatWouldEndIt) {
  make_heartbeat_file(folder_.file("heartbeat"));
  const pid_t writer = fork();
  if (writer == 0) {
    Heartbeat heartbeat(folder_.file("heartbeat"));
    heartbeat.accepts_stack_signal(SIGRTMIN + 9);
    heartbeat.working("x");
    _exit(0);
  }
  waitpid(writer, nullptr, 0);
  std::string page = read_file(folder_.file("heartbeat"));
  page.replace(16, sizeof pid_, std::string(reinterpret_cast<const char*>(&pid_), sizeof pid_));
  folder_.write("heartbeat", page);
  ASSERT_EQ(read_heartbeat(folder_.file("heartbeat"))->pid, pid_);
  EXPECT_NE(stacks("/absent").find("no debugger"), std::string::npos);
  EXPECT_EQ(waitpid(pid_, nullptr, WNOHANG), 0) << "it lives";
}

Assignment assignment_with_first_rank(int rank) {
  Assignment place;
  place.first_rank = rank;
  return place;
}

TEST(HeartbeatMonitor, MakesAndRemovesItsFiles) {
  const ScratchFolder folder;
  std::string file;
  {
    const HeartbeatMonitor watch(folder.path(), assignment_with_first_rank(4), 2, "");
    file = watch.file(1);
    EXPECT_TRUE(std::filesystem::exists(file));
    Worker worker;
    worker.local_rank = 1;
    worker.pid = 5;
    EXPECT_EQ(watch.statuses({worker}).front().rank, 5);
    EXPECT_FALSE(watch.statuses({worker}).front().beat);
    EXPECT_FALSE(watch.best_step());
  }
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST(HeartbeatMonitor, SeesWhichProcessIsStopped) {
  const ScratchFolder folder;
  const HeartbeatMonitor monitor(folder.path(), assignment_with_first_rank(0), 1, "");
  const pid_t rank = fork();
  if (rank == 0) {
    Heartbeat heartbeat(monitor.file(0));
    heartbeat.working("forward");
    for (;;) pause();
  }
  Worker worker;
  worker.pid = rank;
  const auto state = [&] { return monitor.statuses({worker}).front().process_state; };
  EXPECT_TRUE(eventually([&] { return state() == 'S'; }));
  kill(rank, SIGSTOP);
  EXPECT_TRUE(eventually([&] { return state() == 'T'; }));
  kill(rank, SIGKILL);
  waitpid(rank, nullptr, 0);
}

TEST(HangDetector, ReportsEachTimeoutOnceAndRepeatsNoticesLater) {
  const ScratchFolder folder;
  HeartbeatMonitor watch(folder.path(), assignment_with_first_rank(0), 1, "");
  HangDetector detector({.notice_after = milliseconds(50), .timeout = milliseconds(400)});
  Heartbeat heartbeat(watch.file(0));
  const Heartbeat::Waiting wait(heartbeat, "barrier", 3);
  Worker worker;
  worker.pid = getpid();
  int notices = 0;
  int ends = 0;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 60; ++i) {
    if (const auto found = detector.look(watch.statuses({worker}))) ++(found->ends_job ? ends : notices);
    usleep(10'000);
  }
  const auto lasted = std::chrono::steady_clock::now() - start + milliseconds(50);
  EXPECT_EQ(ends, 1);
  // After 50 ms, 100 ms, 200 ms ...: however long the loop took here.
  int most = 0;
  for (auto next = milliseconds(50); next <= lasted; next *= 2) ++most;
  EXPECT_GE(notices, 1);
  EXPECT_LE(notices, most);
}

/// Rank 0 works for ever, and rank 1 waits for it: without the states of their processes it would be rank 0's
/// doing.
TEST(HangDetector, OfALauncherNamesTheRankThatWasStopped) {
  const ScratchFolder folder;
  LauncherProcess job({"run", "--nproc-per-node=2", "--heartbeat-timeout=3", "--shutdown-timeout=1",
                       LOCKSTEP_BEATING_RANK, "0", folder.path()});
  await_number(folder.file("0"));
  kill(await_number(folder.file("1")), SIGSTOP);
  const Finished end = job.wait();
  EXPECT_EQ(end.status, 124);
  EXPECT_NE(end.err.find("FAILED: rank 1 "), std::string::npos) << end.err;
  EXPECT_NE(end.err.find("it is stopped by a signal"), std::string::npos) << end.err;
}

TEST(StacksCommand, AsksTheLauncherWhereTheSystemHasNoPidfds) {
  const ScratchFolder folder;
  LauncherProcess job({"run", "sh", "-c",
                       "echo $$ > " + folder.file("new") + "; mv " + folder.file("new") + " " +
                           folder.file("pid") + "; exec sleep 1000"});
  await_number(folder.file("pid"));
  const Finished asked = LauncherProcess({"stacks", std::to_string(job.pid())}, {}, forbid_pidfds).wait();
  EXPECT_EQ(asked.status, 0) << asked.err;
  EXPECT_TRUE(eventually([&] { return job.err().find("stacks of rank 0") != std::string::npos; }))
      << job.err();
}

/// A PATH with a debugger that attaches to nothing, says when it runs, and never ends by itself.
Environment with_hanging_debugger(const ScratchFolder& folder) {
  folder.write(
      "eu-stack",
      "#!/bin/sh\ntrap '' TERM\n: > " + folder.file("debugging") + "\nwhile :; do sleep 0.01; done\n", true);
  return {{"PATH", folder.path() + ":/usr/bin:/bin"}};
}

TEST(StacksCommand, IsNotDelayedByAHangingDebugger) {
  const ScratchFolder folder;
  LauncherProcess job(
      {"run", "sh", "-c",
       "trap ': > " + folder.file("passed_on") + "' USR1; echo $$ > " + folder.file("new") + "; mv " +
           folder.file("new") + " " + folder.file("pid") + "; while :; do sleep 0.01; done"},
      with_hanging_debugger(folder));
  await_number(folder.file("pid"));
  EXPECT_EQ(launch({"stacks", std::to_string(job.pid())}).status, 0);
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(folder.file("debugging")); }));
  job.signal(SIGUSR1);
  EXPECT_TRUE(eventually([&] { return std::filesystem::exists(folder.file("passed_on")); }))
      << "the launcher goes on meanwhile";
  job.signal(SIGTERM);
  const Finished end = job.wait();
  EXPECT_EQ(end.status, 128 + SIGTERM);
  EXPECT_NE(end.err.find("stacks of rank 0"), std::string::npos) << end.err;
  EXPECT_EQ(end.err.find("processes are still running"), std::string::npos)
      << "the end of the job waits for it";
}

TEST(FailureReport, IsPrintedDespiteAHangingDebugger) {
  const ScratchFolder folder;
  // 86: it has waited for the others in vain, so that their stacks are shown first.
  const Finished job =
      launch({"run", "--nproc-per-node=2", "sh", "-c", "[ $RANK = 1 ] && exec sleep 1000; exit 86"},
             with_hanging_debugger(folder));
  EXPECT_EQ(job.status, 86);
  EXPECT_TRUE(std::filesystem::exists(folder.file("debugging")));
  const auto stacks = job.err.find("the debugger printed nothing; from the kernel");
  const auto report = job.err.find("FAILED: rank 0 ");
  EXPECT_LT(stacks, report) << job.err;
  EXPECT_NE(report, std::string::npos) << job.err;
}

TEST(StacksCommand, RefusesProcessesThatAreNoLauncher) {
  for (const auto& word :
       {std::string("x"), std::string("0"), std::to_string(getpid()), std::string("2147483646")}) {
    const Finished asked = launch({"stacks", word});
    EXPECT_EQ(asked.status, 2) << word;
    const std::string place =
        word == "x" || word == "0" ? "PID '" + word + "': expected" : "process " + word + ": ";
    EXPECT_EQ(asked.err.find("lockstep stacks: " + place), 0U) << asked.err;
  }
  EXPECT_EQ(launch({"stacks"}).status, 2);
  EXPECT_EQ(launch({"stacks", "--help"}).status, 0);
}

}  // namespace
}  // namespace lockstep::launch
