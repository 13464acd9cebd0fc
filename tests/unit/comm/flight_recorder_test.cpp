#include "comm/diagnostics/flight_recorder.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

namespace lockstep::comm {
namespace {

OpMeta all_reduce(std::int64_t count) {
  OpMeta meta;
  meta.name = "all_reduce";
  meta.dtype = "Float";
  meta.reduce_op = "sum";
  meta.dimensions = 1;
  meta.sizes[0] = meta.elements = count;
  meta.bytes = 4 * count;
  return meta;
}

OpMeta recv_from(int peer) {
  OpMeta meta = all_reduce(1);
  meta.name = "recv";
  meta.reduce_op = "";
  meta.peer = peer;
  meta.is_message = true;
  return meta;
}

TEST(FlightRecorder, CountsCollectivesAndMessagesOfEachGroup) {
  FlightRecorder recorder(1, 2, 10);
  const int first = recorder.add_group({"world", {0, 1}, "gloo"});
  const int second = recorder.add_group({"world/sub/1", {1}, "gloo"});
  EXPECT_EQ(recorder.begin(first, all_reduce(1)).sequence, 1U);
  EXPECT_EQ(recorder.begin(first, recv_from(0)).sequence, 1U);
  EXPECT_EQ(recorder.begin(first, all_reduce(1)).sequence, 2U);
  EXPECT_EQ(recorder.begin(second, all_reduce(1)).sequence, 1U);
  EXPECT_EQ(recorder.progress(first).collectives, 2U);
  EXPECT_EQ(recorder.progress(first).messages, 1U);
  EXPECT_EQ(recorder.operations(), 4U);
  EXPECT_EQ(recorder.find_group("world/sub/1"), second);
  EXPECT_EQ(recorder.find_group("nobody"), -1);
}

TEST(FlightRecorder, ForgetsTheOldest) {
  FlightRecorder recorder(0, 1, 3);
  const int group = recorder.add_group({"world", {0}, "gloo"});
  std::vector<OperationId> tickets;
  for (int i = 1; i <= 5; ++i) tickets.push_back(recorder.begin(group, all_reduce(i)));
  EXPECT_FALSE(recorder.find(tickets[1]));
  EXPECT_FALSE(recorder.find_collective(group, 2));
  ASSERT_TRUE(recorder.find_collective(group, 3));
  EXPECT_EQ(recorder.find_collective(group, 3)->meta.elements, 3);
  EXPECT_EQ(recorder.oldest_unfinished()->id.sequence, 3U);
  recorder.finish(tickets[0], true);
  EXPECT_EQ(recorder.progress(group).finished, 1U);
  EXPECT_EQ(recorder.dump("a test").at("entries").size(), 3U);
}

TEST(FlightRecorder, ZeroEntriesAreCountedOnly) {
  FlightRecorder recorder(0, 1, 0);
  const int group = recorder.add_group({"world", {0}, "gloo"});
  const OperationId id = recorder.begin(group, all_reduce(1));
  recorder.finish(id, true);
  EXPECT_EQ(id.sequence, 1U);
  EXPECT_FALSE(recorder.find(id));
  EXPECT_TRUE(recorder.dump("a test").at("entries").empty());
  recorder.finish(id, true);
  EXPECT_EQ(recorder.progress(group).finished, 1U);
}

TEST(FlightRecorder, OperationsThatLeftTheRingAreCounted) {
  FlightRecorder recorder(0, 1, 2);
  const int group = recorder.add_group({"world", {0}, "gloo"});
  const OperationId slow = recorder.begin(group, all_reduce(1));
  for (int i = 0; i < 3; ++i) recorder.finish(recorder.begin(group, all_reduce(1)), true);
  EXPECT_FALSE(recorder.find(slow));
  EXPECT_EQ(recorder.progress(group).finished, 3U);
  recorder.finish(slow, true);
  recorder.finish(slow, false);
  EXPECT_EQ(recorder.progress(group).finished, 4U);
}

TEST(FlightRecorder, TheFirstEndCounts) {
  FlightRecorder recorder(0, 1, 3);
  const int group = recorder.add_group({"world", {0}, "gloo"});
  const OperationId id = recorder.begin(group, all_reduce(1));
  recorder.finish(id, false);
  recorder.finish(id, true);
  EXPECT_EQ(recorder.find(id)->state, OperationState::failed);
  EXPECT_FALSE(recorder.oldest_unfinished());
}

/// The names are those of PyTorch's flight recorder, which its tools read.
TEST(FlightRecorder, DumpsInTheFieldsOfPyTorch) {
  FlightRecorder recorder(1, 2, 10);
  const int group = recorder.add_group({"world", {0, 1}, "gloo"});
  {
    const OperationLabel label("bucket 2");
    recorder.finish(recorder.begin(group, all_reduce(8)), true);
  }
  recorder.begin(group, recv_from(0));
  const auto dump = recorder.dump("a test");
  EXPECT_EQ(dump.at("pg_config").at("0").at("ranks"), "[0,1]");
  EXPECT_EQ(dump.at("pg_status").at("0").at("last_enqueued_collective"), 1);
  const auto& done = dump.at("entries").at(0);
  EXPECT_EQ(done.at("profiling_name"), "gloo:all_reduce");
  EXPECT_EQ(done.at("collective_seq_id"), 1);
  EXPECT_EQ(done.at("input_sizes"), nlohmann::json::parse("[[8]]"));
  EXPECT_EQ(done.at("input_dtypes"), nlohmann::json::parse(R"(["Float"])"));
  EXPECT_EQ(done.at("state"), "completed");
  EXPECT_EQ(done.at("label"), "bucket 2");
  EXPECT_GE(done.at("time_discovered_completed_ns").get<std::int64_t>(),
            done.at("time_created_ns").get<std::int64_t>());
  const auto& waiting = dump.at("entries").at(1);
  EXPECT_EQ(waiting.at("state"), "started");
  EXPECT_EQ(waiting.at("p2p_seq_id"), 1);
  EXPECT_EQ(waiting.at("is_p2p"), true);
  EXPECT_FALSE(waiting.contains("time_discovered_completed_ns"));
}

TEST(OperationRecord, IsPutIntoWords) {
  FlightRecorder recorder(1, 2, 10);
  const int group = recorder.add_group({"world", {0, 1}, "gloo"});
  const OperationLabel label("bucket 2");
  EXPECT_EQ(recorder.find(recorder.begin(group, all_reduce(2'097'152)))->text(),
            "all_reduce #1 (bucket 2, Float [2097152], 8 MiB)");
  EXPECT_EQ(recorder.find(recorder.begin(group, recv_from(0)))->text(),
            "recv #1 (bucket 2, from rank 0 of the group, Float [1], 4 bytes)");
  EXPECT_EQ(all_reduce(8).fingerprint(), "all_reduce of sum, 8 x Float");
  EXPECT_EQ(size_text(1536), "1.5 KiB");
}

TEST(OperationLabel, NestsAndIsTheThreadsOwn) {
  EXPECT_TRUE(OperationLabel::current().view().empty());
  const OperationLabel outer("outer");
  {
    const OperationLabel inner("inner");
    EXPECT_EQ(OperationLabel::current().view(), "inner");
    std::thread([] { EXPECT_TRUE(OperationLabel::current().view().empty()); }).join();
  }
  EXPECT_EQ(OperationLabel::current().view(), "outer");
}

}  // namespace
}  // namespace lockstep::comm
