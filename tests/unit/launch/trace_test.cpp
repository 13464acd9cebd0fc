// What lockstep trace makes of traces of ranks that differ, miss, come late, and live on hosts of other
// clocks.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"
#include "trace/chrome_trace.hpp"
#include "trace/rank_trace.hpp"
#include "trace/trace_report.hpp"

namespace lockstep::launch {
namespace {

using lockstep::testing::contains_all;
using lockstep::testing::TemporaryFolder;
using nlohmann::json;

constexpr std::int64_t kMillisecond = 1'000'000;

json operation(int number, std::int64_t begin, std::int64_t end, int size = 4) {
  json entry{{"process_group", {"0", "world"}},
             {"collective_seq_id", number},
             {"p2p_seq_id", 0},
             {"is_p2p", false},
             {"profiling_name", "gloo:all_reduce"},
             {"input_sizes", {{size}}},
             {"input_dtypes", {"Float"}},
             {"state", end == 0 ? "started" : "completed"},
             {"time_created_ns", begin * kMillisecond}};
  if (end != 0) entry["time_discovered_completed_ns"] = end * kMillisecond;
  return entry;
}

/// `wall_offset` in milliseconds. `last_collective`: if a later one is no longer among the entries.
void write(const TemporaryFolder& folder, int rank, const json& entries, const std::string& host = "node0",
           std::int64_t wall_offset = 0, int last_collective = 0, const std::string& run = "") {
  for (const auto& entry : entries)
    last_collective = std::max(last_collective, entry.at("collective_seq_id").get<int>());
  const json trace{
      {"run", run},
      {"rank", rank},
      {"world_size", 2},
      {"host", host},
      {"reason", "a test"},
      {"wall_offset_ns", wall_offset * kMillisecond},
      {"entries", entries},
      {"spans", {{{"name", "forward"}, {"thread", 7}, {"begin_ns", 0}, {"end_ns", kMillisecond}}}},
      {"pg_config", {{"0", {{"name", "0"}, {"desc", "world"}, {"ranks", "[0,1]"}}}}},
      {"pg_status", {{"0", {{"last_enqueued_collective", last_collective}}}}}};
  lockstep::testing::write_bytes(folder / ("trace-rank-" + std::to_string(rank) + ".json"), trace.dump());
}

std::string report_of(const TemporaryFolder& folder) {
  const auto traces = read_traces(folder.path());
  return trace_report(traces, merge(traces));
}

TEST(Trace, NamesWhoNeverArrived) {
  const TemporaryFolder folder;
  write(folder, 0, {operation(1, 0, 2), operation(2, 3, 0)});
  write(folder, 1, json::array({operation(1, 1, 2)}));
  EXPECT_TRUE(contains_all(report_of(folder),
                           {"the last collective that all ranks have completed is all_reduce #1",
                            "never arrived at collective #2: rank 1; in all_reduce #2: rank 0",
                            "rank 0 on node0: is in all_reduce #2 of world (written for: a test)"}));
}

TEST(Trace, NamesWhoDiffers) {
  const TemporaryFolder folder;
  write(folder, 0, {operation(1, 0, 2), operation(2, 3, 0, 4)});
  write(folder, 1, {operation(1, 1, 2), operation(2, 3, 0, 8)});
  EXPECT_TRUE(contains_all(report_of(folder),
                           {"the ranks differ in collective #2: ", "rank 0: gloo:all_reduce, Float [[4]]",
                            "rank 1: gloo:all_reduce, Float [[8]]"}));
}

/// A rerun with fewer ranks writes into the same folder.
TEST(Trace, ShowsTheLatestRunAlone) {
  const TemporaryFolder folder;
  write(folder, 0, {operation(1, 0, 2), operation(2, 3, 4)}, "node0", 0, 0, "2-b");
  write(folder, 1, {operation(1, 0, 2), operation(2, 3, 0, 8)}, "node0", 0, 0, "1-a");
  const std::string report = report_of(folder);
  EXPECT_TRUE(contains_all(report, {"rank 1 wrote no trace"})) << report;
  EXPECT_EQ(report.find("differ"), std::string::npos) << report;
}

/// The ranks of the latest run were killed.
TEST(Trace, DoesNotTakeAnEarlierRunForTheLatest) {
  const TemporaryFolder folder;
  write(folder, 0, json::array({operation(1, 0, 2)}), "node0", 0, 0, "1-a");
  lockstep::testing::write_bytes(folder / "trace-run.json", R"({"run": "2-b", "world_size": 2})");
  EXPECT_THROWS(read_traces(folder.path()), DataError, "the latest run in '", "wrote no traces");
  write(folder, 1, json::array({operation(1, 0, 2)}), "node0", 0, 0, "2-b");
  const std::string report = report_of(folder);
  EXPECT_TRUE(contains_all(report, {"rank 0 wrote no trace"})) << report;
}

/// A ring that has forgotten an operation says nothing about it.
TEST(Trace, LeavesOutWhatARankMayHaveForgotten) {
  const TemporaryFolder folder;
  write(folder, 0, {operation(1, 0, 2), operation(2, 3, 4)});
  write(folder, 1, json::array({operation(2, 3, 4)}));
  const auto traces = read_traces(folder.path());
  const auto merged = merge(traces);
  ASSERT_EQ(merged.size(), 1U);
  EXPECT_EQ(merged[0].number, 2U);
  EXPECT_TRUE(merged[0].is_complete());
}

/// Operations of other groups may have overwritten all of a group's.
TEST(Trace, LeavesOutAGroupThatARankHasForgotten) {
  const TemporaryFolder folder;
  write(folder, 0, {operation(1, 0, 2), operation(2, 3, 4), operation(3, 5, 0)});
  write(folder, 1, json::array(), "node0", 0, 2);
  const auto traces = read_traces(folder.path());
  const auto merged = merge(traces);
  ASSERT_EQ(merged.size(), 1U);
  EXPECT_EQ(merged[0].number, 3U);
  EXPECT_EQ(merged[0].missing, std::vector<int>{1});
}

TEST(Trace, MeasuresWhichRankArrivesLate) {
  const TemporaryFolder folder;
  write(folder, 0, {operation(1, 0, 5), operation(2, 10, 17)});
  write(folder, 1, {operation(1, 4, 5), operation(2, 16, 17)});
  const auto traces = read_traces(folder.path());
  const auto lateness = lateness_of(traces, merge(traces));
  ASSERT_EQ(lateness.size(), 2U);
  EXPECT_EQ(lateness[1].last, 2);
  EXPECT_NEAR(lateness[1].late, 0.010, 1e-9);
  EXPECT_NEAR(lateness[0].waited, 0.010, 1e-9);
  EXPECT_TRUE(contains_all(report_of(folder), {"6.000 ms in all_reduce #2 of world for rank 1"}));
}

/// Its clock is an hour ahead; its collectives end when the others' do.
TEST(Trace, AdjustsTheClockOfAnotherHost) {
  const TemporaryFolder folder;
  constexpr std::int64_t kHour = 3'600'000;
  write(folder, 0, {operation(1, 100, 105), operation(2, 110, 117)});
  write(folder, 1, {operation(1, 54 + kHour, 55 + kHour), operation(2, 66 + kHour, 67 + kHour)}, "node1",
        kHour);
  const auto traces = read_traces(folder.path());
  EXPECT_EQ(traces[1].operations[0].begin, 104 * kMillisecond);
  EXPECT_NEAR(lateness_of(traces, merge(traces))[1].late, 0.010, 1e-9);
}

TEST(Trace, IsDrawnWithALaneForEachKind) {
  const TemporaryFolder folder;
  write(folder, 0, {operation(1, 0, 5), operation(2, 2, 6)});
  write(folder, 1, {operation(1, 4, 5), operation(2, 5, 6)});
  const auto traces = read_traces(folder.path());
  const json drawn = chrome_trace(traces, merge(traces));
  int overlapping = 0, waits = 0, spans = 0;
  for (const auto& event : drawn.at("traceEvents")) {
    if (event.at("ph") != "X" || event.at("pid") != 0) continue;
    overlapping += event.at("tid").get<int>() == 101 ? 1 : 0;
    waits += event.at("name") == "wait for the last rank" ? 1 : 0;
    spans += event.at("name") == "forward" && event.at("dur") == 1000.0 ? 1 : 0;
  }
  EXPECT_EQ(overlapping, 1);
  EXPECT_EQ(waits, 2);
  EXPECT_EQ(spans, 1);
}

TEST(Trace, RefusesOtherFiles) {
  const TemporaryFolder folder;
  EXPECT_THROWS(read_traces(folder.path()), DataError, "holds no trace-rank-N.json", "LOCKSTEP_TRACE_DIR");
  lockstep::testing::write_bytes(folder / "trace-rank-0.json", R"({"rank": "zero"})");
  EXPECT_THROWS(read_traces(folder.path()), DataError, "trace-rank-0.json' is not a trace of a rank");
  const TemporaryFolder damaged;
  write(damaged, 0, json::array());
  const auto path = damaged / "trace-rank-0.json";
  auto trace = json::parse(std::ifstream(path));
  trace["world_size"] = 2'147'483'647;
  lockstep::testing::write_bytes(path, trace.dump());
  EXPECT_THROWS(read_traces(damaged.path()), DataError, "rank 0 of 2147483647");
  std::filesystem::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_THROWS(read_traces(damaged.path()), DataError, "trace-rank-0.json", "it is no file");
  EXPECT_THROWS(read_traces(folder / "absent"), DataError, "cannot read the folder");
}

}  // namespace
}  // namespace lockstep::launch
