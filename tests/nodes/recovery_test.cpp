// Ranks of a training over two hosts are lost, and replaced while the others keep their processes; and whole
// nodes, with and without another one that waits.

#include <csignal>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "distributed/resume_job.hpp"
#include "hosts_test.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;
using lockstep::testing::count_lines_with;
using lockstep::testing::same_training;
using lockstep::testing::Trace;
using lockstep::testing::trace_of;

const Words kRecover{"--max-recoveries", "50"};

/// Ranks that spin share processors with whatever else runs.
constexpr std::chrono::seconds kLimit{180};

class RecoveryOverNodes : public Hosts {
 protected:
  /// A new folder for the next job of the test.
  void begin_job() {
    job_ = folder().file("job" + std::to_string(++jobs_));
    fs::create_directories(job_ + "/out");
  }
  fs::path out() const { return job_ + "/out"; }

  Words probe(const Words& more) const {
    return Words{LOCKSTEP_CHECKPOINT_PROBE,
                 "--out",
                 job_ + "/out",
                 "--folder",
                 job_ + "/checkpoints",
                 "--epochs",
                 "1"} +
           more;
  }

  /// A launcher with so many ranks on each of the first hosts.
  std::vector<std::unique_ptr<LauncherProcess>> start_job(const std::vector<int>& ranks, const Words& flags,
                                                          const Words& more) {
    std::vector<std::unique_ptr<LauncherProcess>> launchers;
    for (std::size_t host = 0; host < ranks.size(); ++host)
      launchers.push_back(
          start(static_cast<int>(host), c10d("2", std::to_string(ranks[host]), 1) + flags + probe(more)));
    return launchers;
  }

  /// The training of which nobody is lost.
  const Trace& undisturbed(const std::vector<int>& ranks, const std::string& backend) {
    static std::map<std::pair<std::vector<int>, std::string>, Trace> traces;
    const auto [place, is_new] = traces.try_emplace({ranks, backend});
    if (is_new) {
      begin_job();
      for (auto& launcher : start_job(ranks, kRecover, {"--backend", backend})) {
        const Finished end = launcher->wait(kLimit);
        EXPECT_EQ(end.status, 0) << end.err;
      }
      place->second = trace_of(out(), count(ranks));
    }
    return place->second;
  }

  static int count(const std::vector<int>& ranks) { return std::accumulate(ranks.begin(), ranks.end(), 0); }

  /// The training has the bits of the undisturbed one. A rank that is lost after the others have its
  /// gradients writes no loss for that step: those are taken from the other.
  void expect_same_bits(const std::vector<int>& ranks, const std::string& backend, std::size_t most_missing) {
    Trace found = trace_of(out(), count(ranks));
    const Trace& wanted = undisturbed(ranks, backend);
    std::size_t missing = 0;
    for (auto& [rank, losses] : found.losses) {
      missing += wanted.losses.at(rank).size() - losses.size();
      losses.insert(wanted.losses.at(rank).begin(), wanted.losses.at(rank).end());
    }
    EXPECT_LE(missing, most_missing);
    EXPECT_TRUE(same_training(wanted, found));
  }

  /// All processes that the ranks have had.
  std::vector<int> processes(int ranks) const {
    std::vector<int> counts;
    for (int rank = 0; rank < ranks; ++rank)
      counts.push_back(count_lines_with(read_file(out() / ("pids." + std::to_string(rank))), ""));
    return counts;
  }

 private:
  std::string job_;
  int jobs_ = 0;
};

struct LossCase {
  const char* name;
  /// Of each host. If they differ, the first rank of each host alone talks to the others.
  std::vector<int> ranks;
  int lost;
  const char* way;
  const char* backend;
};

class ARankIsLost : public RecoveryOverNodes, public ::testing::WithParamInterface<LossCase> {};
INSTANTIATE_TEST_SUITE_P(As, ARankIsLost,
                         ::testing::Values(LossCase{"FollowerOfNode1", {1, 2}, 2, "k", "auto"},
                                           LossCase{"LeaderOfNode1", {1, 2}, 1, "b", "auto"},
                                           LossCase{"Rank0AndItsSuccessor", {1, 2}, 0, "2", "auto"},
                                           LossCase{"OnlyRankOfNode1", {2, 1}, 2, "x", "gloo"}),
                         [](const auto& test) { return test.param.name; });

TEST_P(ARankIsLost, AndReplacedOnItsNodeWhileTheOthersKeepTheirProcesses) {
  make_hosts(2);
  const auto& [name, ranks, lost, way, backend] = GetParam();
  undisturbed(ranks, backend);
  begin_job();
  constexpr int kLosses = 2;
  auto launchers = start_job(ranks, kRecover,
                             {"--losses", std::to_string(kLosses), "--ways", way, "--lost-rank",
                              std::to_string(lost), "--backend", backend, "--losses-until", "24"});
  std::string words;
  for (auto& launcher : launchers) {
    const Finished end = launcher->wait(kLimit);
    EXPECT_EQ(end.status, 0) << end.err;
    if (words.empty()) words = end.err;
  }
  std::vector<int> wanted(static_cast<std::size_t>(count(ranks)), 1);
  wanted[static_cast<std::size_t>(lost)] += way == std::string("2") ? 2 * kLosses : kLosses;
  EXPECT_EQ(processes(count(ranks)), wanted) << words;
  EXPECT_EQ(count_lines_with(words, "all ranks are there again after"), kLosses) << words;
  expect_same_bits(ranks, backend, 2 * kLosses);
}

/// Rank 2 is stopped on the other node, and killed there.
TEST_F(RecoveryOverNodes, AHungRankIsKilledAndReplacedOnItsNode) {
  make_hosts(2);
  undisturbed({1, 2}, "auto");
  begin_job();
  auto launchers = start_job({1, 2}, kRecover + Words{"--heartbeat-timeout", "4"},
                             {"--losses", "1", "--ways", "p", "--lost-rank", "2", "--losses-until", "20"});
  const Finished first = launchers[0]->wait(kLimit), second = launchers[1]->wait(kLimit);
  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(second.status, 0) << second.err;
  EXPECT_TRUE(has(first.err, "rank 2 makes no progress (--heartbeat-timeout)"));
  EXPECT_EQ(processes(3), (std::vector<int>{1, 1, 2})) << first.err;
  expect_same_bits({1, 2}, "auto", 2);
}

/// Waits until rank 0 has written so many losses.
void await_steps(const fs::path& out, int steps) {
  EXPECT_TRUE(
      eventually([&] { return count_lines_with(read_file(out / "losses.0"), " ") >= steps; }, kLimit));
}

/// How node 1 of a running job is lost.
class ANodeIsLost : public RecoveryOverNodes, public ::testing::WithParamInterface<const char*> {
 protected:
  void lose_node(LauncherProcess& launcher) {
    if (GetParam() == std::string("ByItsLauncher")) return launcher.signal(SIGKILL);
    network().cut(1);
  }
};
INSTANTIATE_TEST_SUITE_P(As, ANodeIsLost, ::testing::Values("ByItsLauncher", "ByItsNetwork"),
                         [](const auto& test) { return test.param; });

const Words kSlow{"--step-time", "100"};

TEST_P(ANodeIsLost, AndTheJobEndsWithTheReasonIfNoOtherOneWaits) {
  make_hosts(2);
  begin_job();
  auto launchers = start_job({1, 2}, kRecover, kSlow);
  await_steps(out(), 5);
  lose_node(*launchers[1]);
  const Finished end = launchers[0]->wait(kLimit);
  EXPECT_EQ(end.status, 1) << end.err;
  EXPECT_TRUE(has(end.err,
                  "and with it ranks 1, 2; the ranks are not recovered: no node waits that could take "
                  "its place"));
  // The other side of a cut network ends as well.
  EXPECT_NE(launchers[1]->wait(kLimit).status, 0);
}

TEST_P(ANodeIsLost, AndTheOneThatWaitsTakesItsPlaceWhileTheOthersKeepTheirProcesses) {
  make_hosts(3);
  undisturbed({1, 2}, "auto");
  begin_job();
  auto launchers = start_job({1, 2}, kRecover, kSlow);
  await_steps(out(), 1);
  auto waiting = start(2, c10d("2", "2", 1) + kRecover + probe(kSlow));
  EXPECT_TRUE(eventually([&] { return waiting->err().find("this node is a spare") != std::string::npos; }));
  await_steps(out(), 5);
  lose_node(*launchers[1]);
  const Finished first = launchers[0]->wait(kLimit), third = waiting->wait(kLimit);
  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(third.status, 0) << third.err;
  EXPECT_TRUE(has(first.err, "takes the place of the lost node 1"));
  EXPECT_EQ(processes(3), (std::vector<int>{1, 2, 2})) << first.err;
  expect_same_bits({1, 2}, "auto", 4);
}

TEST_F(RecoveryOverNodes, ANodeThatIsAskedToEndIsRelievedByTheOneThatWaits) {
  make_hosts(3);
  undisturbed({1, 2}, "auto");
  begin_job();
  auto launchers = start_job({1, 2}, kRecover, kSlow);
  await_steps(out(), 1);
  auto waiting = start(2, c10d("2", "2", 1) + kRecover + probe(kSlow));
  EXPECT_TRUE(eventually([&] { return waiting->err().find("this node is a spare") != std::string::npos; }));
  await_steps(out(), 5);
  launchers[1]->signal(SIGTERM);
  const Finished second = launchers[1]->wait(kLimit);
  EXPECT_EQ(second.status, 128 + SIGTERM) << second.err;
  const Finished first = launchers[0]->wait(kLimit), third = waiting->wait(kLimit);
  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(third.status, 0) << third.err;
  EXPECT_EQ(processes(3), (std::vector<int>{1, 2, 2})) << first.err;
  expect_same_bits({1, 2}, "auto", 4);
}

}  // namespace
}  // namespace lockstep::launch
