#include "resume_job.hpp"

#include <fstream>

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;

std::map<int, std::string> losses_in(const fs::path& path) {
  std::map<int, std::string> losses;
  std::ifstream file(path);
  int step = 0;
  for (std::string bits; file >> step >> bits;) {
    const auto [place, is_new] = losses.emplace(step, bits);
    // A killed rank may leave half a line.
    const bool same = is_new || place->second == bits;
    EXPECT_TRUE(same) << path << ": step " << step << " had the losses " << place->second << " and " << bits;
  }
  return losses;
}

}  // namespace

Trace trace_of(const fs::path& out, int ranks) {
  Trace trace;
  for (int rank = 0; rank < ranks; ++rank) {
    trace.losses[rank] = losses_in(out / ("losses." + std::to_string(rank)));
  }
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(out / "final", none)) {
    const std::string name = entry.path().filename();
    if (name != "manifest.json") trace.files[name] = read_bytes(entry.path());
  }
  return trace;
}

::testing::AssertionResult same_training(const Trace& wanted, const Trace& found) {
  for (const auto& [rank, losses] : wanted.losses) {
    const auto other = found.losses.find(rank);
    if (other == found.losses.end() || other->second != losses)
      return ::testing::AssertionFailure() << "the losses of rank " << rank << " differ";
  }
  if (wanted.files.size() < 5) return ::testing::AssertionFailure() << "too few files to compare";
  if (found.files.size() != wanted.files.size())
    return ::testing::AssertionFailure() << "other files at the end";
  for (const auto& [name, bytes] : wanted.files) {
    const auto other = found.files.find(name);
    if (other == found.files.end() || other->second != bytes)
      return ::testing::AssertionFailure() << name << " differs at the end";
  }
  return ::testing::AssertionSuccess();
}

const Trace& uninterrupted(int ranks) {
  static std::map<int, Trace> traces;
  const auto [place, is_new] = traces.try_emplace(ranks);
  if (is_new) {
    const TemporaryFolder folder;
    Words words = probe_in(folder, {"--no-agree"});
    const Finished job = run_job(words, ranks);
    EXPECT_EQ(job.status, 0) << job.err;
    place->second = trace_of(folder / "out", ranks);
  }
  return place->second;
}

Words probe_in(const TemporaryFolder& folder, const Words& more) {
  fs::create_directories(folder / "out");
  Words words{LOCKSTEP_CHECKPOINT_PROBE, "--out", folder / "out", "--folder", folder / "checkpoints"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace lockstep::testing
