// Ranks of a training are lost under the real launcher, and replaced while the others keep their processes.

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "lockstep/core/runtime/program.hpp"
#include "lost_rank.hpp"
#include "resume_job.hpp"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const Words kRecover{"--max-recoveries", "50"};

Finished run_in(const TemporaryFolder& folder, int ranks, const Words& more, const Words& flags = kRecover) {
  return run_job(probe_in(folder, Words{"--epochs", "2"} + more), ranks, flags);
}

/// A training in run_elastic() of which nobody is lost.
const Trace& undisturbed(int ranks, const std::string& backend = "shm") {
  static std::map<std::pair<int, std::string>, Trace> traces;
  const auto [place, is_new] = traces.try_emplace({ranks, backend});
  if (is_new) {
    const TemporaryFolder folder;
    const Finished job = run_in(folder, ranks, {"--backend", backend});
    EXPECT_EQ(job.status, 0) << job.err;
    place->second = trace_of(folder / "out", ranks);
  }
  return place->second;
}

/// The processes that each rank has had.
std::vector<std::size_t> processes_in(const fs::path& out, int ranks) {
  std::vector<std::size_t> counts;
  for (int rank = 0; rank < ranks; ++rank)
    counts.push_back(lines_of(launch::read_file(out / ("pids." + std::to_string(rank)))).size());
  return counts;
}

/// Those processes of all ranks that have trained: how many were started as spares, and how many after a
/// loss.
std::pair<int, int> successors_in(const fs::path& out, int ranks) {
  int spares = 0, others = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    for (const auto& line : lines_of(launch::read_file(out / ("trained." + std::to_string(rank))))) {
      if (line.ends_with(":spare"))
        ++spares;
      else if (!line.ends_with(" -"))
        ++others;
    }
  }
  return {spares, others};
}

std::size_t count_files(const fs::path& folder, const std::string& end) {
  return static_cast<std::size_t>(
      std::count_if(fs::directory_iterator(folder), fs::directory_iterator(),
                    [&](const auto& entry) { return entry.path().filename().string().ends_with(end); }));
}

/// A rank that is lost after the others have got its gradients, and before it writes its loss, writes none
/// for that step.
Trace with_lost_lines(Trace found, const Trace& wanted, int lost, int at_most) {
  const auto before = found.losses[lost].size();
  for (const auto& [step, loss] : wanted.losses.at(lost)) found.losses[lost].emplace(step, loss);
  EXPECT_LE(found.losses[lost].size(), before + static_cast<std::size_t>(at_most)) << "of rank " << lost;
  return found;
}

struct LossCase {
  int ranks;
  int lost;
  const char* way;
  const char* backend;
};

class ALostRankIsReplaced : public ::testing::TestWithParam<LossCase> {};
INSTANTIATE_TEST_SUITE_P(Of, ALostRankIsReplaced,
                         ::testing::Values(LossCase{2, 0, "k", "shm"}, LossCase{2, 1, "x", "shm"},
                                           LossCase{2, 1, "e", "shm"}, LossCase{3, 0, "b", "shm"},
                                           LossCase{2, 0, "b", "gloo"}, LossCase{2, 1, "2", "shm"}),
                         [](const auto& test) {
                           return std::to_string(test.param.lost) + "Of" + std::to_string(test.param.ranks) +
                                  "By" + test.param.way + "Over" + test.param.backend;
                         });

TEST_P(ALostRankIsReplaced, AndTheOthersKeepTheirProcessesAndAllBits) {
  const auto [ranks, lost, way, backend] = GetParam();
  const TemporaryFolder folder;
  const int losses = 2;
  const Finished job = run_in(folder, ranks,
                              {"--losses", std::to_string(losses), "--ways", way, "--lost-rank",
                               std::to_string(lost), "--backend", backend, "--losses-until", "60"});
  EXPECT_EQ(job.status, 0) << job.err;
  const Trace found =
      with_lost_lines(trace_of(folder / "out", ranks), undisturbed(ranks, backend), lost, 2 * losses);
  EXPECT_TRUE(same_training(undisturbed(ranks, backend), found));
  std::vector<std::size_t> wanted(static_cast<std::size_t>(ranks), 1);
  const int processes = way == std::string("2") ? 2 * losses : losses;
  wanted[static_cast<std::size_t>(lost)] += static_cast<std::size_t>(processes);
  EXPECT_EQ(processes_in(folder / "out", ranks), wanted) << job.err;
  EXPECT_EQ(count_files(folder / "checkpoints", ".tmp"), 0U);
  // The loss of a process in its set-up belongs to the recovery under way.
  EXPECT_EQ(count_lines_with(job.err, "all ranks are there again after"), losses) << job.err;
}

/// A new process is lost some milliseconds after its set-up: the others wait at the store for what it was to
/// say there.
TEST(ALossWhileTheGroupIsFormed, IsReplacedAsWell) {
  const TemporaryFolder folder;
  const int losses = 3;
  const Finished job =
      run_in(folder, 2,
             {"--losses", std::to_string(losses), "--ways", "f", "--lost-rank", "0", "--losses-until", "90"});
  EXPECT_EQ(job.status, 0) << job.err;
  const Trace found = with_lost_lines(trace_of(folder / "out", 2), undisturbed(2), 0, 2 * losses);
  EXPECT_TRUE(same_training(undisturbed(2), found));
  EXPECT_EQ(processes_in(folder / "out", 2), (std::vector<std::size_t>{1 + 2 * losses, 1})) << job.err;
}

class ASpareTakesALostRanksPlace : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Over, ASpareTakesALostRanksPlace, ::testing::Values("shm", "gloo"));

TEST_P(ASpareTakesALostRanksPlace, AndTheOthersKeepTheirProcessesAndAllBits) {
  const TemporaryFolder folder;
  // So slow that a new spare is there at the next loss.
  const Finished job = run_in(folder, 2,
                              {"--losses", "3", "--ways", "k", "--losses-until", "90", "--backend",
                               GetParam(), "--step-time", "60", "--seed", "2"},
                              kRecover + Words{"--spares", "2"});
  EXPECT_EQ(job.status, 0) << job.err;
  Trace found = trace_of(folder / "out", 2);
  for (const int rank : {0, 1}) found = with_lost_lines(found, undisturbed(2, GetParam()), rank, 3);
  EXPECT_TRUE(same_training(undisturbed(2, GetParam()), found));
  EXPECT_EQ(count_lines_with(job.err, "all ranks are there again after"), 3) << job.err;
  EXPECT_EQ(count_lines_with(job.err, "the spare "), 0) << job.err;
  const auto processes = processes_in(folder / "out", 2);
  // Those that trained, and as many spares that wait at the end as can be there.
  EXPECT_GE(processes[0] + processes[1], 5U + 1U) << job.err;
  EXPECT_LE(processes[0] + processes[1], 5U + 2U) << job.err;
  EXPECT_EQ(successors_in(folder / "out", 2), std::pair(3, 0)) << job.err;
  EXPECT_EQ(count_files(folder / "checkpoints", ".tmp"), 0U);
}

/// Two spares that wait. `status`: of a job that gets `signal`; 0: it gets none.
class AJobWithSpares : public ::testing::TestWithParam<std::pair<int, int>> {};
INSTANTIATE_TEST_SUITE_P(That, AJobWithSpares,
                         ::testing::Values(std::pair(0, 0), std::pair(SIGTERM, kPreemptedExitCode),
                                           std::pair(SIGUSR1, kPreemptedExitCode), std::pair(SIGINT, 130)),
                         [](const auto& test) {
                           const int number = test.param.first;
                           return number == 0 ? "EndsByItself" : "GetsSignal" + std::to_string(number);
                         });

TEST_P(AJobWithSpares, LeavesNoneBehind) {
  const auto [number, status] = GetParam();
  const TemporaryFolder folder;
  const auto job = start_job(probe_in(folder, {"--epochs", "2", "--step-time", number == 0 ? "10" : "60"}), 2,
                             kRecover + Words{"--spares", "2"});
  EXPECT_TRUE(launch::eventually([&] {
    return processes_in(folder / "out", 2) == std::vector<std::size_t>{2, 2};
  })) << job->err();
  if (number != 0) job->signal(number);
  const Finished ended = job->wait();
  EXPECT_EQ(ended.status, status) << ended.err;
  EXPECT_TRUE(ranks_on_host(folder / "out").empty()) << ended.err;
  EXPECT_EQ(count_lines_with(ended.err, "the spare "), 0) << ended.err;
  EXPECT_EQ(count_lines_with(ended.err, "FAILED"), 0) << ended.err;
}

TEST(SparesOfAJobWithoutFurtherRecoveries, EndWithTheLastOne) {
  const TemporaryFolder folder;
  const auto job =
      start_job(probe_in(folder, {"--epochs", "1", "--losses", "1", "--ways", "k", "--losses-until", "10",
                                  "--losses-from", "20", "--step-time", "60"}),
                2, {"--max-recoveries", "1", "--spares", "2"});
  const auto is_recovered = [&] { return count_lines_with(job->err(), "all ranks are there again") == 1; };
  EXPECT_TRUE(launch::eventually(is_recovered)) << job->err();
  EXPECT_TRUE(launch::eventually([&] { return ranks_on_host(folder / "out").size() == 2; })) << job->err();
  const Finished ended = job->wait();
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(successors_in(folder / "out", 2), std::pair(1, 0)) << ended.err;
  const auto processes = processes_in(folder / "out", 2);
  EXPECT_EQ(processes[0] + processes[1], 4U) << ended.err;
}

/// The set-up of rank 0's spares opens the trackers beside rank 0, which goes on writing.
TEST(ASpareOfRank0, LeavesTheTableOfTheLiveRankAlone) {
  const TemporaryFolder folder;
  const Finished job = run_in(folder, 2,
                              {"--losses", "2", "--ways", "k", "--lost-rank", "0", "--losses-until", "90",
                               "--step-time", "60", "--track", "true"},
                              kRecover + Words{"--spares", "1"});
  EXPECT_EQ(job.status, 0) << job.err;
  EXPECT_EQ(count_lines_with(job.err, "all ranks are there again after"), 2) << job.err;
  std::ifstream file(folder / "out" / "runs" / "metrics.csv");
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line, "step,time,loss");
  // A rank that is lost after the others have got its gradients has not written its step.
  int before = 0, missing = 0;
  while (std::getline(file, line)) {
    int step = 0, end = 0;
    double time = 0, loss = 0;
    ASSERT_EQ(std::sscanf(line.c_str(), "%d,%lf,%lf%n", &step, &time, &loss, &end), 3) << line;
    ASSERT_EQ(static_cast<std::size_t>(end), line.size()) << line;
    ASSERT_GT(step, before) << line;
    missing += step - before - 1;
    before = step;
    const double wanted = std::strtod(undisturbed(2).losses.at(0).at(step - 1).c_str(), nullptr);
    EXPECT_NEAR(loss, wanted, 1e-6 * wanted) << line;
  }
  EXPECT_EQ(before, 100);
  EXPECT_LE(missing, 2);
  // That of a tracker which the program has opened by itself.
  before = 0;
  for (const auto& text : lines_of(launch::read_file(folder / "out" / "runs" / "metrics.jsonl"))) {
    const int step = json::parse(text).at("step");
    EXPECT_GT(step, before) << text;
    before = step;
  }
  EXPECT_EQ(before, 100);
}

/// New processes get the answers that the first ones got, among them ids of processes that are gone.
TEST(ObjectCollectivesOfTheSetUp, AreReplayedForNewProcesses) {
  const TemporaryFolder folder;
  // A step takes longer than a signal's delay: otherwise both ranks may be lost at once.
  const Finished job = run_in(folder, 2,
                              {"--ask", "true", "--losses", "4", "--ways", "k", "--losses-until", "80",
                               "--seed", "3", "--step-time", "20"});
  ASSERT_EQ(job.status, 0) << job.err;
  Trace found = trace_of(folder / "out", 2);
  for (const int rank : {0, 1}) found = with_lost_lines(found, undisturbed(2), rank, 4);
  EXPECT_TRUE(same_training(undisturbed(2), found));
  std::vector<std::string> first;
  for (const char* rank : {"0", "1"})
    first.push_back(lines_of(launch::read_file(folder / "out" / ("pids." + std::string(rank)))).front());
  const std::string wanted = fmt::format("{} {} {} {} {}", first[0], first[0], first[0], first[1], first[1]);
  std::size_t count = 0;
  for (const char* rank : {"0", "1"}) {
    for (const auto& line : lines_of(launch::read_file(folder / "out" / ("asked." + std::string(rank))))) {
      EXPECT_EQ(line, wanted) << "rank " << rank;
      ++count;
    }
  }
  EXPECT_EQ(count, 2U + 4U) << job.err;
}

/// Without a spare, and without a loss.
TEST(AProgramThatANewProcessCouldNotRun, IsNamedWhenItsTrainingBegins) {
  const TemporaryFolder folder;
  const Finished job = run_in(folder, 2, {"--misuse", "collective"});
  EXPECT_EQ(job.status, 0) << job.err;
  EXPECT_EQ(count_lines_with(job.err,
                             "from now on lost ranks will not be replaced (--max-recoveries): the program "
                             "calls all_reduce before run_elastic()"),
            1)
      << job.err;
}

Finished run_plain_loop(const TemporaryFolder& folder, const Words& more, const Words& flags = kRecover) {
  return run_in(folder, 2, Words{"--plain", "true"} + more, flags);
}

std::map<std::string, std::string> files_in(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder))
    files[entry.path().filename()] = read_bytes(entry.path());
  return files;
}

/// Without an Accelerator, and with an optimizer of LibTorch that steps by itself.
TEST(APlainLoopThatLosesRanks, HasTheBitsOfAnUndisturbedOne) {
  const TemporaryFolder whole, lost;
  ASSERT_EQ(run_plain_loop(whole, {}).status, 0);
  const Finished job = run_plain_loop(lost, {"--losses", "4", "--ways", "kbxe", "--losses-until", "90"});
  ASSERT_EQ(job.status, 0) << job.err;
  EXPECT_EQ(count_lines_with(job.err, "all ranks are there again after"), 4) << job.err;
  const auto files = files_in(whole / "out" / "final");
  EXPECT_EQ(files.size(), 3U);
  EXPECT_EQ(files_in(lost / "out" / "final") == files, true);
  const Trace wanted = trace_of(whole / "out", 2);
  Trace found = trace_of(lost / "out", 2);
  EXPECT_EQ(wanted.losses.at(0).size(), 100U);
  for (const int rank : {0, 1}) found = with_lost_lines(found, wanted, rank, 4);
  EXPECT_EQ(found.losses == wanted.losses, true);
  const auto processes = processes_in(lost / "out", 2);
  EXPECT_EQ(processes[0] + processes[1], 2U + 4U);
  // Each change names the rank that has a new process, also in that process, and the step.
  std::set<std::string> changes;
  for (const char* name : {"changes.0", "changes.1"})
    for (const auto& line : lines_of(launch::read_file(lost / "out" / name))) changes.insert(line);
  EXPECT_EQ(changes.size(), 4U) << job.err;
  const auto names_a_rank = [](const std::string& line) {
    return line.find(" [0] after ") != std::string::npos || line.find(" [1] after ") != std::string::npos;
  };
  EXPECT_TRUE(std::ranges::all_of(changes, names_a_rank)) << *changes.begin();
}

/// What all survivors have half done is used by nobody.
TEST(APlainLoopThatCommunicatesBeforeItsCommit, IsNotRecovered) {
  const TemporaryFolder folder;
  const Finished job = run_plain_loop(folder, {"--misuse", "early"});
  EXPECT_NE(job.status, 0);
  EXPECT_TRUE(
      contains_all(job.err, {"rank 0 was in the middle of the update of step 10, and no other rank holds a "
                             "whole state: commit a step before anything else that communicates"}))
      << job.err;
}

TEST(APlainLoopThatCountsItsEpochs, IsNamedAtItsFirstRecovery) {
  const TemporaryFolder folder;
  const Finished job = run_plain_loop(folder, {"--misuse", "count", "--losses", "1", "--ways", "k",
                                               "--losses-from", "60", "--losses-until", "20"});
  EXPECT_EQ(job.status, 2) << job.err;
  EXPECT_TRUE(contains_all(job.err, {"has moved loader #1 from epoch 1, sample ", "to epoch 0, sample 4",
                                     "while (loader.epoch() < epochs)"}))
      << job.err;
}

/// Kind and size of each operation of a rank.
std::vector<std::string> operations_in(const fs::path& folder, int rank) {
  std::ifstream file(folder / fmt::format("trace-rank-{}.json", rank));
  const json trace = json::parse(file);
  std::vector<std::string> operations;
  for (const auto& entry : trace.at("entries"))
    operations.push_back(entry.at("profiling_name").get<std::string>() + " " + entry.at("bytes").dump());
  return operations;
}

/// What the promise costs while nothing fails: not one message.
TEST(ATrainingThatCanBeRecovered, SendsTheSameMessages) {
  const TemporaryFolder with, without;
  // 200 steps.
  ASSERT_EQ(run_job(probe_in(with), 2, kRecover).status, 0);
  ASSERT_EQ(run_job(probe_in(without), 2).status, 0);
  for (const int rank : {0, 1}) {
    const auto wanted = operations_in(without / "out" / "traces", rank);
    ASSERT_GT(wanted.size(), 800U);
    EXPECT_EQ(operations_in(with / "out" / "traces", rank), wanted);
  }
}

TEST(ARankThatFailsInTheSameStep, EndsTheJobWithItsReportAfterThreeTimes) {
  const TemporaryFolder folder;
  const Finished job =
      run_in(folder, 2, {"--losses", "1", "--ways", "s", "--lost-rank", "1", "--losses-until", "40"});
  EXPECT_EQ(job.status, 1) << job.err;
  EXPECT_TRUE(contains_all(
      job.err, {"3 losses in a row without a new step", "FAILED: rank 1", "this step cannot be computed"}))
      << job.err;
  EXPECT_EQ(count_lines_with(job.err, "error: this step cannot be computed"), 3) << job.err;
  EXPECT_EQ(processes_in(folder / "out", 2).front(), 1U) << job.err;
}

struct Misuse {
  const char* name;
  /// What the one message says.
  Words texts;
};

class AMisuseOfRunElastic : public ::testing::TestWithParam<Misuse> {};
INSTANTIATE_TEST_SUITE_P(
    Of, AMisuseOfRunElastic,
    ::testing::Values(
        Misuse{"collective",
               {"the ranks are not recovered", "the program calls all_reduce before run_elastic()",
                "Move it into the body"}},
        Misuse{"lonely",
               {"rank 1 of 2 replaces a lost process", "its all_reduce before", "Move it into the body"}},
        Misuse{"question",
               {"rank 1 of 2 replaces a lost process",
                "its all_gather_object, which the lost process did not call before"}},
        Misuse{"objects",
               {"rank 1 (process 2) is not the program that the rank began "
                "with",
                "objects for checkpoints: 1 before, 2 now"}},
        Misuse{"swallow", {"run_elastic() goes on after step", "do not catch CommunicationError in it"}}),
    [](const auto& test) { return test.param.name; });

/// Rank 1 is lost once. Another process would do the same again, so none is started.
TEST_P(AMisuseOfRunElastic, EndsTheJobWithAMessageThatNamesIt) {
  const TemporaryFolder folder;
  const Finished job = run_in(folder, 2,
                              {"--losses", "1", "--ways", "x", "--lost-rank", "1", "--losses-until", "10",
                               "--misuse", GetParam().name});
  EXPECT_NE(job.status, 0);
  for (const auto& text : GetParam().texts) EXPECT_TRUE(contains_all(job.err, {text})) << job.err;
  EXPECT_LE(processes_in(folder / "out", 2).back(), 2U) << job.err;
}

TEST(ALossOfAllRanks, HasNoSourceAndRestartsAllFromTheCheckpoint) {
  const TemporaryFolder folder;
  const Finished job = run_in(folder, 2, {"--losses", "1", "--ways", "a", "--losses-until", "40"},
                              kRecover + Words{"--max-restarts", "1"});
  EXPECT_EQ(job.status, 0) << job.err;
  EXPECT_TRUE(contains_all(job.err, {"no rank is left that holds the state", "restart 1 of 1"})) << job.err;
  EXPECT_TRUE(same_training(undisturbed(2), trace_of(folder / "out", 2)));
}

TEST(ALossThatIsNotRecovered, RestartsAllFromTheCheckpoint) {
  const TemporaryFolder folder;
  const Finished job = run_in(folder, 2, {"--losses", "2", "--ways", "b", "--losses-until", "60"},
                              {"--max-recoveries", "1", "--max-restarts", "1"});
  EXPECT_EQ(job.status, 0) << job.err;
  EXPECT_TRUE(contains_all(job.err, {"all 1 recoveries (--max-recoveries) are used up", "restart 1 of 1"}))
      << job.err;
  EXPECT_TRUE(same_training(undisturbed(2), trace_of(folder / "out", 2)));
}

TEST(ALossWithoutRecoveries, EndsTheJobAsBefore) {
  const TemporaryFolder folder;
  const Finished job =
      run_in(folder, 2, {"--losses", "1", "--ways", "b", "--lost-rank", "1", "--losses-until", "40"}, {});
  EXPECT_NE(job.status, 0);
  EXPECT_TRUE(contains_all(job.err, {"FAILED: rank 1", "SIGKILL"})) << job.err;
  EXPECT_EQ(processes_in(folder / "out", 2), (std::vector<std::size_t>{1, 1})) << job.err;
}

}  // namespace
}  // namespace lockstep::testing
