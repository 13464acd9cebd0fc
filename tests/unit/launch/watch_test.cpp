#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "agent/heartbeat_monitor.hpp"
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

RankStatus view(int rank, Activity activity, const std::string& what, std::uint64_t number, int still,
                std::uint64_t step = 57) {
  RankStatus result;
  result.rank = rank;
  result.place = "node1, pid " + std::to_string(70 + rank);
  result.beat = HeartbeatRecord{.activity = activity, .what = what, .number = number, .step = step};
  result.still = seconds(still);
  return result;
}

RankStatus working(int rank, const std::string& what, int still) {
  return view(rank, Activity::working, what, 0, still);
}
RankStatus waiting(int rank, const std::string& what, std::uint64_t number, int still) {
  return view(rank, Activity::waiting, what, number, still);
}

RankStatus ended(RankStatus rank, int status) {
  rank.status = status;
  return rank;
}

std::string text_of(const std::vector<RankStatus>& views, int limit = 30) {
  const auto found = find_hang(views, seconds(limit));
  return found ? found->text : "";
}

TEST(Hang, NamesTheRankThatWorksWhileOthersWait) {
  const std::vector<RankStatus> views{waiting(0, "all_reduce", 412, 30), waiting(1, "all_reduce", 412, 31),
                                      waiting(2, "all_reduce", 412, 30), working(3, "forward", 31)};
  EXPECT_EQ(
      text_of(views),
      "rank 3 (node1, pid 73) has not moved for 31 s: last seen in forward, step 57; ranks 0, 1, 2 wait in "
      "all_reduce #412 for 30 s");
  EXPECT_EQ(find_hang(views, seconds(30))->stuck, std::vector<int>{3});
  EXPECT_TRUE(find_hang(views, seconds(30))->somebody_waits);
}

TEST(Hang, IsNoneWhereAnybodyMovesOrIsUnknown) {
  EXPECT_EQ(text_of({waiting(0, "barrier", 1, 99), working(1, "forward", 2)}), "");
  RankStatus silent;
  silent.rank = 1;
  EXPECT_EQ(text_of({waiting(0, "barrier", 1, 99), silent}), "") << "a rank that never beat";
  EXPECT_EQ(text_of({}), "");
  EXPECT_EQ(text_of({ended(waiting(0, "barrier", 1, 99), 0)}), "") << "all have ended";
}

TEST(Hang, OfRanksThatAllWorkIsTold) {
  const auto found = find_hang({working(0, "evaluation", 40), working(1, "evaluation", 41)}, seconds(30));
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->somebody_waits);
}

RankStatus held(RankStatus rank, char state) {
  rank.process_state = state;
  return rank;
}

TEST(Hang, NamesTheRankThatIsStoppedWhateverTheOthersDo) {
  EXPECT_EQ(
      text_of({working(0, "saving a checkpoint", 33), held(waiting(1, "all_reduce", 5, 33), 'T')}),
      "rank 1 (node1, pid 71) has not moved for 33 s: it is stopped by a signal (SIGSTOP, SIGTSTP): SIGCONT "
      "continues it; last seen in all_reduce #5; rank 0 is in saving a checkpoint, step 57 for 33 s");
  for (const char state : {'T', 't', 'D'}) {
    const auto found =
        find_hang({working(0, "forward", 33), held(waiting(1, "all_reduce", 5, 33), state)}, seconds(30));
    EXPECT_EQ(found->stuck, std::vector<int>{1}) << state;
    EXPECT_TRUE(found->is_certain);
  }
  EXPECT_EQ(
      find_hang({working(0, "forward", 33), held(waiting(1, "barrier", 5, 33), 'S')}, seconds(30))->stuck,
      std::vector<int>{0});
}

TEST(Hang, NamesRanksThatLeft) {
  EXPECT_EQ(text_of({waiting(0, "all_reduce", 61, 31), ended(working(1, "forward", 90), 0)}),
            "rank 1 (node1, pid 71) left at step 57 (exit code 0); rank 0 waits in all_reduce #61 for 31 s");
}

TEST(Hang, NamesTheOneBehindWhereAllMayWait) {
  EXPECT_EQ(text_of({view(0, Activity::either, "backward", 0, 40, 8),
                     view(1, Activity::either, "backward", 0, 44, 7)}),
            "rank 1 (node1, pid 71) has not moved for 44 s: last seen in backward, step 7; rank 0 waits in "
            "backward, "
            "step 8 for 40 s");
}

TEST(Hang, NamesTheOneElsewhere) {
  EXPECT_EQ(text_of({waiting(0, "all_reduce", 5, 33), waiting(1, "all_reduce", 5, 33),
                     waiting(2, "barrier", 2, 33)}),
            "rank 2 (node1, pid 72) has not moved for 33 s: last seen in barrier #2; ranks 0, 1 wait in "
            "all_reduce #5 "
            "for 33 s");
}

TEST(Hang, BlamesNobodyWhereAllWaitTogether) {
  const auto found =
      find_hang({waiting(0, "all_reduce", 5, 33), waiting(1, "all_reduce", 5, 33)}, seconds(30));
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->stuck.empty());
  EXPECT_NE(found->text.find("look at the network"), std::string::npos);
}

TEST(Hang, LongListsAreCut) {
  std::vector<RankStatus> views{working(0, "forward", 31)};
  for (int rank = 1; rank < 1000; ++rank) views.push_back(waiting(rank, "barrier", 1, 31));
  EXPECT_NE(text_of(views).find("15, 16 and 983 more wait in barrier #1"), std::string::npos)
      << text_of(views);
}

TEST(Hang, NamesTheOneBehindWhereAllWork) {
  const auto found = find_hang({view(0, Activity::working, "between steps", 0, 40, 8),
                                view(1, Activity::working, "forward", 0, 44, 7)},
                               seconds(30));
  EXPECT_EQ(found->stuck, std::vector<int>{1});
  EXPECT_TRUE(found->is_certain);
  EXPECT_EQ(
      found->text,
      "rank 1 (node1, pid 71) has not moved for 44 s: last seen in forward, step 7; rank 0 is in between "
      "steps, step 8 for 40 s");
}

TEST(LostPeers, ThatLeftAreNamedWithWhatTheOthersDid) {
  EXPECT_EQ(lost_peers({ended(waiting(0, "all_reduce", 61, 1), 256),
                        ended(view(1, Activity::working, "x", 0, 2, 30), 0)}),
            "rank 1 left at step 30 (exit code 0) while rank 0 was in all_reduce #61");
  EXPECT_EQ(lost_peers({ended(waiting(0, "all_reduce", 61, 1), 256), ended(working(1, "x", 1), 9)}), "");
  EXPECT_EQ(lost_peers({ended(working(0, "forward", 1), 256), ended(working(1, "x", 1), 0)}), "");
}

TEST(LostPeers, OfAnAbortedRankAreThoseBehind) {
  const auto aborted = [](int rank, const char* place, int step) {
    return ended(view(rank, Activity::working, place, 0, 12, step), SIGABRT);
  };
  const auto late = ended(view(1, Activity::working, "forward", 0, 31, 57), SIGTERM);
  const std::string named = "rank 1 (node1, pid 71) has not moved for 31 s: last seen in forward, step 57";
  EXPECT_EQ(lost_peers({aborted(0, "between steps", 58), late, aborted(2, "between steps", 58)}), named);
  EXPECT_EQ(lost_peers({aborted(0, "backward", 57), late, aborted(2, "backward", 57)}), named);
  EXPECT_EQ(lost_peers({aborted(0, "forward", 57), late}), "");
  EXPECT_EQ(lost_peers({aborted(0, "forward", 57), ended(working(1, "x", 1), 0)}),
            "rank 1 left at step 57 (exit code 0) while rank 0 was in forward, step 57");
}

TEST(HangDetector, EndsTheJobOnceUnlessSomebodyMoves) {
  HangDetector detector({.timeout = seconds(20)});
  const auto look = [&](int still) {
    const auto found = detector.look({waiting(0, "barrier", 1, still), working(1, "forward", still)});
    return !found ? "" : found->ends_job ? "end" : "notice";
  };
  EXPECT_STREQ(look(19), "");
  EXPECT_STREQ(look(20), "end");
  EXPECT_STREQ(look(21), "");
  EXPECT_STREQ(look(30), "notice");
  EXPECT_STREQ(look(59), "") << "the next notice is after twice the time";
  EXPECT_STREQ(look(1), "");
  EXPECT_STREQ(look(20), "end") << "they had moved";
}

TEST(HangDetector, WhereOtherRanksAreNotSeenActsOnlyOnWhatIsCertain) {
  HangDetector detector({.timeout = seconds(20), .sees_all_ranks = false});
  EXPECT_FALSE(detector.look({waiting(0, "barrier", 1, 99), waiting(1, "barrier", 1, 99)}));
  EXPECT_TRUE(detector.look({waiting(0, "barrier", 1, 99), working(1, "forward", 99)}));
}

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
  EXPECT_EQ(last.reason,
            "3 attempts in a row got no further than step 10: it is not started again, though 6 restart(s) "
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
  EXPECT_FALSE(handles_signal(getpid(), SIGRTMAX - 1));
  std::signal(SIGRTMAX - 1, [](int) {});
  EXPECT_TRUE(handles_signal(getpid(), SIGRTMAX - 1));
  EXPECT_FALSE(blocks_signal(getpid(), SIGRTMAX - 1));
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

TEST_F(ForeignRank, IsLookedAtWithADebugger) {
  folder_.write("eu-stack", "#!/bin/sh\necho \"#0 of $2\"\n", true);
  EXPECT_EQ(stacks(folder_.path() + ":/usr/bin:/bin"), head() + "  #0 of " + std::to_string(pid_) + "\n");
}

TEST_F(ForeignRank, IsNotHeldByADebuggerThatHangs) {
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

TEST_F(ForeignRank, IsLookedAtInTheKernelWhereADebuggerIsKilled) {
  folder_.write("eu-stack", "#!/bin/sh\ntrap '' TERM\nwhile :; do sleep 0.01; done\n", true);
  ask(folder_.path() + ":/usr/bin:/bin");
  EXPECT_EQ(printed(seconds(10)), "");
  const std::string text = printed(seconds(11));
  EXPECT_NE(text.find("the debugger printed nothing"), std::string::npos) << text;
  EXPECT_NE(text.find("thread " + std::to_string(pid_)), std::string::npos) << text;
}

TEST_F(ForeignRank, IsLookedAtInTheKernelWithoutOne) {
  const std::string text = stacks("/absent");
  EXPECT_NE(text.find("no debugger is installed"), std::string::npos) << text;
  EXPECT_NE(text.find("thread " + std::to_string(pid_)), std::string::npos) << text;
}

TEST_F(ForeignRank, IsLookedAtOnceForAllWhoAskMeanwhile) {
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

Assignment place_with_first_rank(int rank) {
  Assignment place;
  place.first_rank = rank;
  return place;
}

TEST(HeartbeatMonitor, MakesAndRemovesItsFiles) {
  const ScratchFolder folder;
  std::string file;
  {
    const HeartbeatMonitor watch(folder.path(), place_with_first_rank(4), 2, "");
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
  const HeartbeatMonitor monitor(folder.path(), place_with_first_rank(0), 1, "");
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

TEST(HangDetector, OfHeartbeatsTellsEachTimeOutOnceAndRepeatsNoticesLater) {
  const ScratchFolder folder;
  HeartbeatMonitor watch(folder.path(), place_with_first_rank(0), 1, "");
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

TEST(StacksCommand, IsNotHeldByADebuggerThatHangs) {
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
  EXPECT_EQ(end.err.find("processes still run"), std::string::npos) << "the end of the job waits for it";
}

TEST(FailureReport, ComesThoughADebuggerHangs) {
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

TEST(StacksCommand, RefusesWhatIsNoLauncher) {
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
