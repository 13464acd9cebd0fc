// A Trainer's job loses ranks under the real launcher, without a line of the program for it.

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/core/runtime/program.hpp"
#include "resume_job.hpp"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const Words kRecoveries{"--max-recoveries", "20"};

Words lines_of(const fs::path& path) {
  Words lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// What a training has left, apart from times.
struct Left {
  /// The files of the last checkpoint.
  std::map<std::string, std::string> files;
  /// {step, name, value} of all losses and evaluations: in the log, and as the tracker has written them.
  std::vector<json> log, tracked;
  /// The last checkpoint's trainer_state.json.
  json state;
  bool operator==(const Left&) const = default;
};

bool is_time(const std::string& name) {
  return name.ends_with("runtime") || name.ends_with("per_second") || name == "epoch";
}

void add_values(const json& values, const json& step, std::vector<json>& to) {
  for (const auto& [name, value] : values.items()) {
    if (value.is_number() && !is_time(name) && name != "step" && name != "time")
      to.push_back(json::array({step, name, value}));
  }
}

/// Without what differs between jobs that are the same.
json without_times(const json& value) {
  if (!value.is_structured()) return value;
  json result = value;
  if (value.is_object()) {
    for (const auto& [name, entry] : value.items()) {
      if ((is_time(name) && name != "epoch") || name == "train_seconds") result.erase(name);
    }
  }
  for (auto& entry : result) entry = without_times(entry);
  return result;
}

Left left_in(const fs::path& out) {
  Left left;
  const fs::path last = out / "trainer" / "checkpoint-40";
  for (const auto& entry : fs::directory_iterator(last)) {
    const std::string name = entry.path().filename();
    if (name == "manifest.json" || name.starts_with("train")) continue;
    left.files[name] = bytes_of(entry.path());
  }
  EXPECT_GE(left.files.size(), 5U);
  const json state = json::parse(bytes_of(last / "trainer_state.json"));
  for (const auto& entry : state.at("log_history")) add_values(entry, entry.at("step"), left.log);
  EXPECT_GT(left.log.size(), 20U);
  left.state = without_times(state);
  EXPECT_EQ(left.state.at("stateful_callbacks").count("EarlyStoppingCallback"), 1U);
  // Each job has a folder of its own.
  auto& best = left.state.at("best_model_checkpoint");
  if (best.is_string()) best = fs::path(best.get<std::string>()).filename().string();
  for (const auto& line : lines_of(out / "trainer" / "runs" / "metrics.jsonl")) {
    const json entry = json::parse(line);
    add_values(entry, entry.at("step"), left.tracked);
  }
  return left;
}

Finished run_trainer(const TemporaryFolder& folder, const Words& more) {
  return run_job(probe_in(folder, Words{"--trainer", "true"} + more), 2, kRecoveries);
}

struct Lost {
  int rank;
  const char* ways;
  int losses = 4;
  int recoveries = 4;
};

class ATrainersJob : public ::testing::TestWithParam<Lost> {};
INSTANTIATE_TEST_SUITE_P(Of, ATrainersJob,
                         ::testing::Values(Lost{0, "k"}, Lost{1, "x"}, Lost{-1, "kbe2"}, Lost{0, "vc"},
                                           Lost{1, "v"}, Lost{0, "d", 2, 4}),
                         [](const auto& test) { return "Ways_" + std::string(test.param.ways); });

TEST_P(ATrainersJob, LosesRanksAndEndsWithTheSameBitsLogsAndEvents) {
  static const auto undisturbed = [] {
    const TemporaryFolder folder;
    const Finished job = run_trainer(folder, {});
    EXPECT_EQ(job.status, 0) << job.err;
    return std::pair(left_in(folder / "out"), lines_of(folder / "out" / "events.1"));
  }();
  const TemporaryFolder folder;
  const Finished job =
      run_trainer(folder, {"--losses", std::to_string(GetParam().losses), "--losses-until", "36", "--ways",
                           GetParam().ways, "--lost-rank", std::to_string(GetParam().rank), "--seed", "5"});
  ASSERT_EQ(job.status, 0) << job.err;
  EXPECT_EQ(count_lines_with(job.err, "all ranks are there again after"), GetParam().recoveries) << job.err;
  const Left left = left_in(folder / "out");
  EXPECT_TRUE(left == undisturbed.first) << job.err;
  EXPECT_EQ(left.state, undisturbed.first.state);
  for (const int rank : {0, 1}) {
    const auto processes = lines_of(folder / "out" / ("pids." + std::to_string(rank)));
    if (GetParam().rank < 0 || rank == GetParam().rank) continue;
    EXPECT_EQ(processes.size(), 1U) << job.err;
    // Callbacks of a rank that stays hear of each event once.
    EXPECT_EQ(lines_of(folder / "out" / ("events." + std::to_string(rank))), undisturbed.second);
  }
}

void forget_losses(const fs::path& out) {
  std::vector<fs::path> marks;
  for (const auto& entry : fs::directory_iterator(out)) {
    if (entry.path().filename().string().starts_with("lost.")) marks.push_back(entry.path());
  }
  for (const auto& mark : marks) fs::remove(mark);
}

/// Rank 0 is lost in the checkpoint of a job that is asked to end, and again in the first step of the job
/// that resumes it: that one keeps what the first job has tracked of the step before.
TEST(APreemptedTrainersJob, LosesRankZeroInItsLastCheckpointAndInTheFirstStepOfTheNextJob) {
  const TemporaryFolder undisturbed, folder;
  ASSERT_EQ(run_trainer(undisturbed, {}).status, 0);
  const Words rank_zero{"--losses", "1", "--losses-until", "1", "--lost-rank", "0"};
  const Finished first =
      run_trainer(folder, rank_zero + Words{"--stop-at", "16", "--losses-from", "17", "--ways", "c"});
  EXPECT_EQ(first.status, kPreemptedExitCode) << first.err;
  EXPECT_EQ(count_lines_with(first.err, "all ranks are there again after"), 1) << first.err;
  // The ranks agree to end one step after the request, and once more after the recovery.
  EXPECT_EQ(count_lines_with(first.out, "checkpoint-18 at step 18"), 1) << first.out << first.err;
  forget_losses(folder / "out");
  const Finished second = run_trainer(folder, rank_zero + Words{"--losses-from", "18", "--ways", "b"});
  EXPECT_EQ(second.status, 0) << second.err;
  EXPECT_EQ(count_lines_with(second.err, "all ranks are there again after"), 1) << second.err;
  Left wanted = left_in(undisturbed / "out"), left = left_in(folder / "out");
  // The summary at the end is that of the resumed run.
  for (auto* const tracked : {&left.tracked, &wanted.tracked})
    std::erase_if(*tracked, [](const json& entry) { return entry.at(0) == 40; });
  EXPECT_EQ(left.tracked, wanted.tracked);
  EXPECT_EQ(left.log, wanted.log);
  EXPECT_TRUE(left.files == wanted.files);
}

/// A new process would not know that the time is over: it has the answer from the others.
TEST(ATrainersJobThatEndsByTheClock, LosesARankAfterItsLastStepAndTrainsNoOther) {
  const TemporaryFolder folder;
  const Finished job =
      run_trainer(folder, {"--max-seconds", "1", "--losses", "1", "--ways", "t", "--lost-rank", "0"});
  ASSERT_EQ(job.status, 0) << job.err;
  EXPECT_EQ(count_lines_with(job.err, "all ranks are there again after"), 1) << job.err;
  for (const char* name : {"events.0", "events.1"}) {
    const Words events = lines_of(folder / "out" / name);
    const auto is_end = [](const std::string& line) { return line.ends_with(" step ends"); };
    const auto last = std::find_if(events.rbegin(), events.rend(), is_end);
    ASSERT_NE(last, events.rend());
    // The lost process and its successor have both heard of it.
    EXPECT_EQ(std::ranges::count(events, *last), name == std::string("events.0") ? 2 : 1);
    EXPECT_EQ(std::stoi(events.back()), std::stoi(*last)) << events.back();
  }
}

struct CallbackCase {
  const char* misuse;
  const char* found;
};

class ACallbackThatBreaksTheRule : public ::testing::TestWithParam<CallbackCase> {};
INSTANTIATE_TEST_SUITE_P(Of, ACallbackThatBreaksTheRule,
                         ::testing::Values(CallbackCase{"communicate", "communicated"},
                                           CallbackCase{"rate", "set a learning rate"},
                                           CallbackCase{"weight", "changed weights"},
                                           CallbackCase{"draw", "drawn random numbers"}),
                         [](const auto& test) { return test.param.misuse; });

TEST_P(ACallbackThatBreaksTheRule, IsNamedOnceAndEndsTheReplacementOfRanks) {
  const TemporaryFolder folder;
  const Finished job = run_trainer(folder, {"--misuse", GetParam().misuse, "--losses", "1", "--losses-until",
                                            "1", "--losses-from", "6", "--ways", "b", "--lost-rank", "1"});
  EXPECT_NE(job.status, 0);
  EXPECT_EQ(count_lines_with(job.err, "from now on lost ranks will not be replaced"), 1) << job.err;
  EXPECT_TRUE(contains_all(job.err, {"Events has ", GetParam().found, "in on_step_end",
                                     "the ranks are not recovered", "FAILED: rank 1"}))
      << job.err;
}

TEST(ATrainersSecondTraining, GoesOnWithoutRecoveries) {
  const TemporaryFolder folder;
  const Finished job = run_trainer(folder, {"--pause", "10"});
  ASSERT_EQ(job.status, 0) << job.err;
  EXPECT_EQ(count_lines_with(job.err, "an earlier training of this process has used them"), 1) << job.err;
  EXPECT_EQ(left_in(folder / "out").state.at("global_step"), 40);
  const Words events = lines_of(folder / "out" / "events.1");
  EXPECT_EQ(std::ranges::count(events, "10 train begins"), 1);
  EXPECT_EQ(std::ranges::count(events, "11 step ends"), 1);
  EXPECT_EQ(std::ranges::count(events, "40 step ends"), 1);
}

}  // namespace
}  // namespace lockstep::testing
