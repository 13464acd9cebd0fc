// What a report makes of a folder in which more than one training has written, and of what its ranks
// recorded.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/checkpoint_folder.hpp"
#include "lockstep/train/trackers.hpp"
#include "report/number_line.hpp"
#include "report/run_reader.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;
using lockstep::testing::contains_all;
using lockstep::testing::TemporaryFolder;
using lockstep::testing::write_bytes;

void log_steps(const fs::path& folder, int first, int last, std::optional<std::int64_t> resume_at = 0) {
  Trackers trackers({.log_with = {"jsonl"}, .folder = folder, .resume_at = resume_at});
  trackers.log_hyperparameters({{"learning_rate", 0.5}}, {});
  for (int step = first; step <= last; ++step) trackers.log({{"train/loss", 1.0 / step}}, step);
  trackers.finish();
}

/// As RankRecord writes it.
void write_rank(const fs::path& folder, int rank, int world_size, double forward) {
  fs::create_directories(folder / "ranks");
  write_bytes(folder / "ranks" / ("rank-" + std::to_string(rank) + ".json"),
              R"({"rank": )" + std::to_string(rank) + R"(, "world_size": )" + std::to_string(world_size) +
                  R"(, "host": "h)" + std::to_string(rank) +
                  R"(", "hardware": {"memory": "1 GiB", "CPU": "A <CPU>"}, "lockstep": "9.9", "seconds": 10,
                  "parts": {"forward": )" +
                  std::to_string(forward) + R"(, "loader": 2, "communication": 0, "odd": -1},
                  "recoveries": [1.79e9, {"time": 1.8e9, "step": 1200}],
                  "peak_memory_mib": )" +
                  std::to_string(100 + rank) + "}");
}

TEST(RunReader, TakesWhatRanksSayOfThemselves) {
  const TemporaryFolder folder;
  log_steps(folder / "runs", 1, 3);
  write_rank(folder.path(), 2, 3, 4);  // Of an earlier training with more ranks.
  fs::last_write_time(folder / "ranks" / "rank-2.json",
                      fs::file_time_type::clock::now() - std::chrono::seconds(100));
  write_rank(folder.path(), 0, 2, 4);
  write_rank(folder.path(), 1, 2, 5);
  write_bytes(folder / "ranks" / "rank-7.json", R"({"rank": 7, "world_size": 2})");
  const RunRecord run = read_run(folder.path());
  EXPECT_TRUE(
      contains_all(fmt::format("{}", fmt::join(run.problems, " ")), {"rank-7.json' is not a rank's record"}));
  EXPECT_EQ(run.world_size, 2);
  EXPECT_EQ(run.lockstep_version, "9.9");
  EXPECT_EQ(run.hosts, (std::set<std::string>{"h0", "h1"}));
  using Facts = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(run.hardware.at("h1"), (Facts{{"CPU", "A <CPU>"}, {"memory", "1 GiB"}}));
  ASSERT_EQ(run.memory.size(), 2U);
  EXPECT_EQ(run.memory[1].host_mib, 101);
  EXPECT_TRUE(std::isnan(run.memory[1].device_mib));
  ASSERT_EQ(run.spent.size(), 2U);
  EXPECT_EQ(run.spent[0].who, "rank 0");
  std::string shares;
  for (const auto& share : run.spent[0].shares)
    shares += share.what + " " + std::to_string(share.seconds) + ";";
  ASSERT_EQ(run.events.size(), 4U);
  EXPECT_EQ(run.events[0].kind, RunEvent::Kind::recovery);
  EXPECT_EQ(run.events[0].text, "rank 0 was lost, and replaced; the other ranks went on");
  EXPECT_EQ(run.events[2].text,
            "rank 0 was lost, and replaced; the other ranks went on, and repeated what they had begun after "
            "step 1,200");
  EXPECT_EQ(run.events[2].step, 1200);
  EXPECT_EQ(shares, "loader 2.000000;forward 4.000000;between steps 4.000000;");
}

void write_state_of(const fs::path& folder, int step, int max_steps, const std::string& rate) {
  const CheckpointInfo info{
      .step = step, .world_size = 1, .lockstep_version = "0.2.0", .libtorch_version = "2"};
  write_checkpoint(folder / checkpoint_name(step), info, [&](const fs::path& place) {
    write_bytes(place / "trainer_state.json", "{\"global_step\": " + std::to_string(step) +
                                                  ", \"max_steps\": " + std::to_string(max_steps) +
                                                  ", \"log_history\": []}");
    write_bytes(place / "training_args.json", "{\"learning_rate\": " + rate + "}");
    return FileDigests{};
  });
}

/// The checkpoint that was written last has fewer steps than one of an earlier training.
TEST(RunReader, TakesTheTrainingThatBeganAnew) {
  const TemporaryFolder folder;
  write_state_of(folder.path(), 20, 20, "0.003");
  write_state_of(folder.path(), 8, 9, "0.01");
  log_steps(folder / "runs", 1, 8);
  const RunRecord run = read_run(folder.path());
  EXPECT_EQ(run.global_step, 8);
  EXPECT_EQ(run.max_steps, 9);
  EXPECT_EQ(run.arguments.at("learning_rate"), "0.01");
  EXPECT_FALSE(run.has_ended);
}

/// One training in the output folder of another, and both in a folder that is of none.
TEST(RunReader, TakesOneOfSeveralOutputFolders) {
  const TemporaryFolder folder;
  const fs::path outer = folder / "outer", inner = outer / "inner";
  log_steps(outer / "runs", 1, 3);
  write_rank(outer, 0, 1, 4);
  log_steps(inner / "runs", 1, 5);
  write_state_of(inner, 5, 5, "0.1");
  write_rank(inner, 0, 2, 4);
  write_rank(inner, 1, 2, 5);
  for (const auto& entry : fs::directory_iterator(inner / "ranks"))
    fs::last_write_time(entry.path(), fs::file_time_type::clock::now() + std::chrono::seconds(100));

  const auto describe = [](const RunRecord& run) {
    return fmt::format("{} ranks, {} bars, {} memories, {} losses, {} events, {}", run.world_size,
                       run.spent.size(), run.memory.size(), run.points_of("loss").size(), run.events.size(),
                       fmt::join(run.problems, " "));
  };
  const auto not_shown = [](const fs::path& other) {
    return "The files in '" + other.string() +
           "' are of another training, and are not shown: name that folder to compare it.";
  };
  EXPECT_EQ(describe(read_run(outer)),
            "1 ranks, 1 bars, 1 memories, 3 losses, 2 events, " + not_shown(inner));
  EXPECT_EQ(describe(read_run(outer / "")), describe(read_run(outer)));
  EXPECT_EQ(describe(read_run(inner)), "2 ranks, 2 bars, 2 memories, 5 losses, 5 events, ");
  EXPECT_EQ(describe(read_run(folder.path())),
            "2 ranks, 2 bars, 2 memories, 5 losses, 5 events, " + not_shown(outer));
}

/// Continued with a larger max_steps, and before its next checkpoint.
TEST(RunReader, DoesNotEndATrainingThatGoesOnBeyondItsEnd) {
  const TemporaryFolder folder;
  write_state_of(folder.path(), 10, 10, "0.1");
  log_steps(folder / "runs", 1, 10);
  EXPECT_TRUE(read_run(folder.path()).has_ended);
  log_steps(folder / "runs", 11, 20, 10);
  const RunRecord run = read_run(folder.path());
  EXPECT_FALSE(run.has_ended);
  EXPECT_EQ(run.global_step, 20);
  EXPECT_FALSE(run.max_steps.has_value());
  ASSERT_FALSE(run.events.empty());
  EXPECT_EQ(run.events.back().text, "continued after step 10");
}

TEST(NumberLine, IsReadAsJsonIs) {
  NumberLineReader reader;
  for (const std::string text :
       {R"({"step":1,"train/loss":-0.5e-3,"a b":12})", R"({"step":2,"train/loss":7,"a b":0})",
        R"({"step":2,"train/loss":7})", R"({"step":2, "train/loss" :7,"a":1,"b":3})",
        R"({"step":2,"b":1,"a":4})", R"( { "x" : 0 } )", R"({"x":1.7976931348623157e308})", R"({"x":-0.0})",
        R"({"x":1E+2})"}) {
    ASSERT_TRUE(reader.read(text)) << text;
    const auto document = nlohmann::json::parse(text);
    ASSERT_EQ(document.size(), reader.values().size()) << text;
    for (const auto& [name, number] : reader.values())
      EXPECT_EQ(document.at(std::string(name)), number) << text;
  }
}

/// What the line before had is only compared with.
TEST(NumberLine, NeverTakesANameTwice) {
  NumberLineReader reader;
  ASSERT_TRUE(reader.read(R"({"a":1,"b":2,"c":3})"));
  EXPECT_FALSE(reader.read(R"({"b":1,"b":2})"));
  EXPECT_FALSE(reader.read(R"({"b":x)"));
  EXPECT_FALSE(reader.read(R"({"b":1,"b":2})"));
  EXPECT_FALSE(reader.read(R"({"b":1,"c":2,"c":3})"));
  EXPECT_TRUE(reader.read(R"({"b":1,"c":2,"a":3})"));
}

TEST(NumberLine, LeavesAllElseToTheOtherReader) {
  NumberLineReader reader;
  for (const std::string text : {"",
                                 "{}",
                                 "{",
                                 "[1]",
                                 R"({"x":1)",
                                 R"({"x":1}})",
                                 R"({"x":1,})",
                                 R"({"x":"nan"})",
                                 R"({"x":NaN})",
                                 R"({"x":inf})",
                                 R"({"x":.5})",
                                 R"({"x":5.})",
                                 R"({"x":05})",
                                 R"({"x":-.5})",
                                 R"({"x":+1})",
                                 R"({"x":1e999})",
                                 R"({"x":0x1})",
                                 R"({"x":5.e1})",
                                 R"({"x":1,"x":2})",
                                 R"({"\u0078":1})",
                                 "{\"\xc3\xa4\":1}",
                                 R"({"x":{}})",
                                 R"({x:1})",
                                 R"({"x":1 2})",
                                 R"({"x":1 "y":2})"})
    EXPECT_FALSE(reader.read(text)) << text;
}

}  // namespace
}  // namespace lockstep::launch
