#include <sys/mount.h>
#include <unistd.h>

#include <csignal>
#include <thread>
#include <tuple>

#include "lockstep/core/environment.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "resume_job.hpp"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using launch::await_number;

Finished run_probe_in(const TemporaryFolder& folder, int ranks, const Words& more, const Words& flags = {}) {
  return run_job(probe_in(folder, more), ranks, flags);
}

/// The steps at which ranks report that they have stopped.
std::vector<std::string> stops_in(const std::string& out) {
  std::vector<std::string> steps;
  const std::string words = " stopped at step ";
  for (const auto& line : lines_of(out)) {
    const auto place = line.find(words);
    if (place != std::string::npos) steps.push_back(line.substr(place + words.size()));
  }
  return steps;
}

::testing::AssertionResult all_stopped_together(const Finished& job, int ranks) {
  const auto steps = stops_in(job.out);
  if (steps.size() == static_cast<std::size_t>(ranks) &&
      std::all_of(steps.begin(), steps.end(), [&](const auto& step) { return step == steps.front(); }) &&
      contains_all(job.out,
                   {"preempted: saved ", "/checkpoint-" + steps.front() + " at step " + steps.front()}))
    return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << job.out << job.err;
}

class AKilledRankResumes : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Rank, AKilledRankResumes, ::testing::Values(0, 1));

/// In the middle of a step, for the rank that hosts the store and writes the checkpoints, and for a plain
/// member.
TEST_P(AKilledRankResumes, WithTheSameBits) {
  const TemporaryFolder folder;
  const Finished job = run_probe_in(
      folder, 2, {"--kill-rank", std::to_string(GetParam()), "--kill-step", "45"}, {"--max-restarts", "1"});
  EXPECT_EQ(job.status, 0) << job.err;
  EXPECT_EQ(count_lines_with(job.out, "checkpoint-42: step 42, epoch 0"), 1) << job.out;
  EXPECT_TRUE(same_training(uninterrupted(2), trace_of(folder / "out", 2)));
}

/// With three ranks the order of additions matters.
TEST(AKilledRankOfThree, ResumesWithTheSameBits) {
  const TemporaryFolder folder;
  const Finished job =
      run_probe_in(folder, 3, {"--kill-rank", "2", "--kill-step", "30"}, {"--max-restarts", "1"});
  EXPECT_EQ(job.status, 0) << job.err;
  EXPECT_EQ(count_lines_with(job.out, "checkpoint-28: step 28, epoch 0"), 1) << job.out;
  EXPECT_TRUE(same_training(uninterrupted(3), trace_of(folder / "out", 3)));
}

/// Whether to run all 220 kills instead of 50, which takes ten minutes.
bool is_long() { return find_variable(process_environment(), "LOCKSTEP_LONG_TESTS").has_value(); }

/// Kills at any time: in steps and in writes, up to 36 steps after training has begun.
class TenKills : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Seed, TenKills, ::testing::Range(1, is_long() ? 13 : 4));

TEST_P(TenKills, LeaveNoTraceInTheTraining) {
  const TemporaryFolder folder;
  const Finished job =
      run_probe_in(folder, 2, {"--kills", "10", "--seed", std::to_string(GetParam()), "--step-time", "8"},
                   {"--max-restarts", "10", "--restart-backoff", "0"});
  EXPECT_EQ(job.status, 0) << job.err;
  EXPECT_EQ(count_lines_with(job.err, "FAILED: rank "), 10) << job.err;
  EXPECT_EQ(count_lines_with(job.err, "(--shutdown-timeout)"), 0) << job.err;
  EXPECT_GE(count_lines_with(job.out, "resumed from "), 5) << job.out;
  EXPECT_TRUE(same_training(uninterrupted(2), trace_of(folder / "out", 2)));
}

/// A checkpoint after every step: most kills hit a write, synchronous or asynchronous.
class KillsDuringWrites : public ::testing::TestWithParam<std::tuple<const char*, int>> {};
INSTANTIATE_TEST_SUITE_P(Ways, KillsDuringWrites,
                         ::testing::Combine(::testing::Values("--no-asynchronous", "--asynchronous"),
                                            ::testing::Range(1, is_long() ? 6 : 2)));

TEST_P(KillsDuringWrites, LeaveNoTraceInTheTraining) {
  const auto [way, seed] = GetParam();
  const TemporaryFolder folder;
  const Finished job = run_probe_in(
      folder, 2,
      {"--kills", "10", "--seed", std::to_string(seed), "--every", "1", "--latest-kill", "40", way},
      {"--max-restarts", "10", "--restart-backoff", "0"});
  EXPECT_EQ(job.status, 0) << job.err;
  EXPECT_EQ(count_lines_with(job.err, "' is skipped: "), 0) << job.err;
  EXPECT_EQ(count_lines_with(job.err, "(--shutdown-timeout)"), 0) << job.err;
  EXPECT_TRUE(same_training(uninterrupted(2), trace_of(folder / "out", 2)));
  for (const auto& entry : fs::directory_iterator(folder / "checkpoints")) {
    EXPECT_FALSE(entry.path().filename().string().ends_with(".tmp")) << entry.path();
  }
}

TEST(ADamagedCheckpoint, IsPassedOverAndNamed) {
  const TemporaryFolder folder;
  EXPECT_EQ(run_probe_in(folder, 2, {"--epochs", "1"}).status, 0);
  const fs::path newest = folder / "checkpoints/checkpoint-49/optimizer.safetensors";
  std::string bytes = read_bytes(newest);
  bytes[bytes.size() / 2] ^= 4;
  write_bytes(newest, bytes);
  const Finished job = run_probe_in(folder, 2, {});
  EXPECT_EQ(job.status, 0) << job.err;
  EXPECT_EQ(count_lines_with(job.err, "checkpoint-49' is skipped: "), 1) << job.err;
  EXPECT_EQ(count_lines_with(job.out, "resumed from " + (folder / "checkpoints/checkpoint-42").string()), 1)
      << job.out;
  // The first run ended after one epoch.
  EXPECT_TRUE(same_training(uninterrupted(2), trace_of(folder / "out", 2)));
}

/// A separate file system that is full after a checkpoint or two. Needs permission to mount.
class SmallDisk {
 public:
  explicit SmallDisk(const fs::path& place) : place_(place) {
    fs::create_directories(place_);
    mounted_ = ::mount("tmpfs", place_.c_str(), "tmpfs", 0, "size=96k") == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(place_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  bool mounted() const { return mounted_; }

 private:
  fs::path place_;
  bool mounted_ = false;
};

TEST(AFullDisk, EndsTheJobAndTheOldCheckpointIsGood) {
  const TemporaryFolder folder;
  const SmallDisk disk(folder / "checkpoints");
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs needs root";
  const Finished job = run_probe_in(folder, 2, {});
  EXPECT_EQ(job.status, 1);
  EXPECT_TRUE(
      contains_all(error_of_rank(job, 0, "checkpoint_probe"), {"No space left on device", "free space"}));
  EXPECT_TRUE(
      contains_all(error_of_rank(job, 1, "checkpoint_probe"), {"because rank 0 failed", "No space left"}));
  const Finished again = run_probe_in(folder, 2, {"--every", "0"});
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(count_lines_with(again.out, "resumed from "), 1) << again.out;
  EXPECT_TRUE(same_training(uninterrupted(2), trace_of(folder / "out", 2)));
}

/// Starts a slow training on two ranks, sends `number` to `target(launcher, folder)`, and waits for the end.
template <class Target>
Finished stop_with(const TemporaryFolder& folder, int number, const Target& target, const Words& flags = {}) {
  auto job = start_job(probe_in(folder, {"--step-time", "15", "--every", "0"}), 2, flags);
  for (const auto* name : {"out/pid.0", "out/pid.1"}) await_number(folder / name);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  ::kill(target(*job, folder), number);
  return job->wait();
}

const auto kLauncher = [](const LauncherProcess& job, const TemporaryFolder&) { return job.pid(); };
const auto kRankOne = [](const LauncherProcess&, const TemporaryFolder& folder) {
  return await_number(folder / "out/pid.1");
};

void expect_to_go_on(const TemporaryFolder& folder) {
  const Finished job = run_probe_in(folder, 2, {});
  EXPECT_EQ(job.status, 0) << job.err;
  EXPECT_EQ(count_lines_with(job.out, "resumed from "), 1) << job.out;
  EXPECT_TRUE(same_training(uninterrupted(2), trace_of(folder / "out", 2)));
}

TEST(ASignalToOneRank, StopsAllAtTheSameStep) {
  const TemporaryFolder folder;
  const Finished job = stop_with(folder, SIGUSR1, kRankOne);
  EXPECT_EQ(job.status, kPreemptedExitCode) << job.err;
  EXPECT_TRUE(all_stopped_together(job, 2));
  expect_to_go_on(folder);
}

/// The whole job was told to stop: it is not restarted, however many restarts are left.
TEST(ASignalToTheLauncher, StopsTheJobAndRestartsNothing) {
  const TemporaryFolder folder;
  const Finished job = stop_with(folder, SIGUSR1, kLauncher, {"--max-restarts", "3"});
  EXPECT_EQ(job.status, kPreemptedExitCode) << job.err;
  EXPECT_TRUE(all_stopped_together(job, 2));
  EXPECT_EQ(count_lines_with(job.err, "restart "), 0) << job.err;
  expect_to_go_on(folder);
}

TEST(SigtermToTheLauncher, LeavesACheckpointWithinTheGrace) {
  const TemporaryFolder folder;
  const Finished job = stop_with(folder, SIGTERM, kLauncher);
  EXPECT_EQ(job.status, kPreemptedExitCode) << job.err;
  EXPECT_TRUE(all_stopped_together(job, 2));
  EXPECT_EQ(count_lines_with(job.err, "killed"), 0) << job.err;
  expect_to_go_on(folder);
}

TEST(AnotherNumberOfRanks, ResumesAfterTheSameSamples) {
  const TemporaryFolder folder;
  EXPECT_EQ(run_probe_in(folder, 2, {"--epochs", "1", "--every", "10"}).status, 0);
  const Finished job = run_probe_in(folder, 1, {"--epochs", "2"});
  EXPECT_EQ(job.status, 0) << job.err;
  EXPECT_EQ(count_lines_with(job.out, "checkpoint-50: step 50, epoch 0, written by 2 rank(s)"), 1) << job.out;
}

}  // namespace
}  // namespace lockstep::testing
