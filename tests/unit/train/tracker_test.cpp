#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/train/trackers.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"
#include "train/trackers/tensorboard_events.hpp"

namespace lockstep {
namespace {

using nlohmann::json;
using testing::read_bytes;
using testing::TemporaryFolder;
using testing::write_bytes;

constexpr double kTime = 1790000000.25;
constexpr double kHistogram[] = {0.25, 0.25, 3.0, 1e30};

std::string hex(const std::string& bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) (text += kDigits[byte >> 4U]) += kDigits[byte & 15U];
  return text;
}

std::map<std::string, std::string> goldens() {
  std::ifstream file(LOCKSTEP_TRACKER_GOLDENS);
  std::map<std::string, std::string> found;
  for (std::string name, value; file >> name >> value;) found[name] = value;
  return found;
}

std::map<std::string, std::string> own_events() {
  return {{"version", events::file_version(kTime)},
          {"restart", events::session_start(kTime, 8)},
          {"scalar", events::scalar(kTime, 7, "loss", 0.1)},
          {"zero", events::scalar(kTime, 0, "train/acc", 0)},
          {"big_step", events::scalar(kTime, std::int64_t{1} << 40U, "nan", std::nan(""))},
          {"text", events::text(kTime, 3, "sample", "a \u00e9\nb")},
          {"histogram", events::histogram(kTime, 300, "w", histogram_of(kHistogram))},
          {"negative", events::histogram(kTime, 1, "n", histogram_of(std::vector{-3.0, -2.5}))},
          {"experiment", events::experiment(kTime, {{"lr", 0.5}, {"name", "a"}}, {"accuracy"})},
          {"session_number", events::session_values(kTime, {{"lr", 0.5}})},
          {"session_text", events::session_values(kTime, {{"name", "a"}})},
          {"session_flag", events::session_values(kTime, {{"f", true}})},
          {"session_end", events::session_end(kTime)}};
}

TEST(Events, HaveThePeersBytes) {
  const auto wanted = goldens();
  const auto own = own_events();
  ASSERT_EQ(wanted.size(), 2 * own.size());
  for (const auto& [name, bytes] : own) {
    EXPECT_EQ(hex(bytes), wanted.at(name)) << name;
    EXPECT_EQ(hex(events::record(bytes)), wanted.at(name + "_record")) << name;
  }
}

TEST(Histogram, LeavesOutWhatIsNotFinite) {
  const double values[] = {std::nan(""), 1.0, std::numeric_limits<double>::infinity()};
  EXPECT_EQ(histogram_of(values).count, 1);
  EXPECT_EQ(histogram_of(values).max, 1);
  EXPECT_TRUE(histogram_of(std::span(values, 1)).limits.empty());
}

std::vector<json> lines_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
  return lines;
}

TEST(JsonLines, HoldsEverything) {
  const TemporaryFolder folder;
  const auto tracker = make_json_lines_tracker(folder.path());
  tracker->log_hyperparameters({{"lr", 0.5}, {"epochs", std::int64_t{3}}, {"name", "a"}, {"f", true}}, {});
  tracker->log({{"loss", 0.1}, {"inf", -std::numeric_limits<double>::infinity()}}, 7);
  tracker->log_text("sample", "a\n\xff", 8);
  tracker->log_histogram("w", histogram_of(kHistogram), 8);
  const auto lines = lines_of(folder / "metrics.jsonl");
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[0]["hyperparameters"], json::parse(R"({"lr":0.5,"epochs":3,"name":"a","f":true})"));
  EXPECT_EQ(lines[1]["loss"], 0.1);
  EXPECT_EQ(lines[1]["inf"], "-inf");
  EXPECT_EQ(lines[1]["step"], 7);
  EXPECT_EQ(lines[2]["text"]["sample"], "a\n\\xff");
  EXPECT_EQ(lines[3]["histogram"]["w"]["count"], 4);
  const LogValues taken = {{"step", 1}};
  EXPECT_THROWS(tracker->log(taken, 9), UsageError, "'step'", "another");
}

/// A line that a killed process left half written is removed, and so are steps that run again.
TEST(JsonLines, ContinuesAfterAKill) {
  const TemporaryFolder folder;
  for (int step = 1; step <= 4; ++step) make_json_lines_tracker(folder.path())->log({{"x", step}}, step);
  std::ofstream(folder / "metrics.jsonl", std::ios::app) << R"({"step":5,"ti)";
  const auto tracker = make_json_lines_tracker(folder.path());
  EXPECT_EQ(lines_of(folder / "metrics.jsonl").size(), 4U);
  tracker->resume_at(2);
  tracker->log({{"x", 30}}, 3);
  const auto lines = lines_of(folder / "metrics.jsonl");
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[1]["x"], 2);
  EXPECT_EQ(lines[2]["x"], 30);
}

/// The table without its time column.
std::string table(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string text;
  for (std::string line; std::getline(file, line);) {
    const auto time = line.find(',');
    text += line.substr(0, time) + line.substr(std::min(line.find(',', time + 1), line.size())) + "\n";
  }
  return text;
}

TEST(Csv, GetsColumnsAsTheyCome) {
  const TemporaryFolder folder;
  auto tracker = make_csv_tracker(folder.path());
  tracker->log({{"loss", 0.25}}, 1);
  tracker->log({{"a \"b\", c", std::nan("")}, {"loss", 1e-9}}, 2);
  EXPECT_EQ(table(folder / "metrics.csv"), "step,loss,\"a \"\"b\"\", c\"\n1,0.25,\n2,1e-09,nan\n");
  tracker = make_csv_tracker(folder.path());
  tracker->resume_at(1);
  tracker->log({{"step", 4}, {"loss", 2}}, 2);
  EXPECT_EQ(table(folder / "metrics.csv"), "step,loss,\"a \"\"b\"\", c\",step\n1,0.25,,\n2,2,,4\n");
}

TEST(Csv, LeavesAForeignTableAlone) {
  const TemporaryFolder folder;
  write_bytes(folder / "metrics.csv", "epoch,loss\n1,2\n");
  EXPECT_THROWS(make_csv_tracker(folder.path()), Error, "epoch,loss", "another folder");
  EXPECT_EQ(read_bytes(folder / "metrics.csv"), "epoch,loss\n1,2\n");
}

/// A spare of a process that lives.
TEST(TrackersOfASuccessor, LeaveTheFilesAloneUntilTheyLog) {
  const TemporaryFolder folder;
  const auto of_lost = make_csv_tracker(folder.path());
  for (const int step : {1, 2, 3}) of_lost->log({{"loss", step}}, step);
  ASSERT_EQ(setenv("LOCKSTEP_REPLACES", "1:spare", 1), 0);
  Trackers trackers({.log_with = {"csv", "jsonl", "tensorboard"}, .folder = folder.path()});
  unsetenv("LOCKSTEP_REPLACES");
  trackers.log_hyperparameters({{"lr", 0.1}}, {});
  trackers.resume_at(2);
  EXPECT_EQ(folder.files(), std::vector<std::string>{"metrics.csv"});
  of_lost->log({{"loss", 4}}, 4);
  EXPECT_EQ(table(folder / "metrics.csv"), "step,loss\n1,1\n2,2\n3,3\n4,4\n");
  trackers.log({{"loss", 5}}, 3);
  EXPECT_EQ(table(folder / "metrics.csv"), "step,loss\n1,1\n2,2\n3,5\n");
  EXPECT_EQ(folder.files().size(), 3U);
}

TEST(TensorBoard, StartsAFileForEachProcessThatResumes) {
  const TemporaryFolder folder;
  Trackers first({.log_with = {"tensorboard"}, .folder = folder.path()});
  first.log({{"loss", 0.5}}, 5);
  Trackers second({.log_with = {"tensorboard"}, .folder = folder.path()});
  second.resume_at(3);
  ASSERT_EQ(folder.files().size(), 2U);
  EXPECT_TRUE(folder.files()[0].starts_with("events.out.tfevents."));
}

TEST(Trackers, RefuseWhatTheyDoNotKnow) {
  const TemporaryFolder folder;
  const TrackerOptions options{.log_with = {"wandb"}, .folder = folder.path()};
  EXPECT_THROWS(Trackers(options), UsageError, "'wandb'", "jsonl");
}

/// A file size limit simulates a full disk.
TEST(Trackers, TellOfAFullDisk) {
  const TemporaryFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100, 100};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    int status = 1;
    try {
      const auto tracker = make_json_lines_tracker(folder.path());
      for (int step = 0; step < 20; ++step) tracker->log({{"loss", 0.5}}, step);
    } catch (const Error& error) {
      status = testing::contains_all(error.what(), {"metrics.jsonl", "File too large"}) ? 0 : 2;
    }
    ::_exit(status);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace lockstep
