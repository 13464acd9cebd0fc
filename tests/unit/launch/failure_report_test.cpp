#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>

#include "failure/error_file.hpp"
#include "failure/failure_report.hpp"
#include "launcher_process.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::launch {
namespace {

/// Ranks that exited with 1.
std::vector<ProcessFailure> failed_ranks(int count) {
  std::vector<ProcessFailure> records(static_cast<std::size_t>(count));
  for (int rank = 0; rank < count; ++rank) {
    ProcessFailure& record = records[static_cast<std::size_t>(rank)];
    record.rank = record.local_rank = rank;
    record.pid = 100 + rank;
    record.program = "prog";
    record.status = 1 << 8;
  }
  return records;
}

TEST(ErrorContent, IsReadInTorchrunsForms) {
  const ScratchFolder folder;
  const auto content = [&](const std::string& text) {
    return error_content(folder.write("error.json", text));
  };
  const auto whole = content(
      R"({"message": {"message": "ValueError: x", "extraInfo": {"py_callstack": "Trace\nValueError: x", "timestamp": "77"}}})");
  EXPECT_EQ(message_of(whole), "ValueError: x");
  EXPECT_EQ(traceback_of(whole), "Trace\nValueError: x");
  EXPECT_EQ(time_of(whole), 77);
  const auto old = content(R"({"message": "text", "timestamp": 5})");
  EXPECT_EQ(message_of(old), "text");
  EXPECT_EQ(time_of(old), 5);
  EXPECT_EQ(message_of(content(R"({"message": 3})")), "");
  EXPECT_EQ(message_of(content(R"({"message": {"message": {"message": "deep"}}})")), "");
  for (const auto* text : {R"({"message": {"message": "cut)", "", "[1]", "{}", "null", "\xff\xfe"}) {
    EXPECT_TRUE(content(text).is_null()) << text;
  }
  EXPECT_TRUE(error_content(folder.file("absent")).is_null());
}

TEST(ErrorContent, ThatIsHugeIsCutDown) {
  const ScratchFolder folder;
  const std::string message(200'000, 'm');
  const auto content = error_content(
      folder.write("long", R"({"message": {"message": ")" + message +
                               R"(", "extraInfo": {"timestamp": "9"}}, "more": ")" + message + "\"}"));
  EXPECT_LT(content.dump().size(), 20'000U);
  EXPECT_TRUE(message_of(content).starts_with("mmmm"));
  EXPECT_EQ(time_of(content), 9);
  const std::string deep =
      R"({"message": "kept", "nest": )" + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  const auto shallow = error_content(folder.write("deep", deep));
  EXPECT_EQ(message_of(shallow), "kept");
  EXPECT_LT(nlohmann::json(shallow).dump().size(), 1000U);
  EXPECT_TRUE(error_content(folder.write("brackets", std::string(5 << 20, '['))).is_null());
}

TEST(ErrorContent, IsNeverWaitedFor) {
  const ScratchFolder folder;
  ASSERT_EQ(mkfifo(folder.file("fifo").c_str(), 0600), 0);
  EXPECT_TRUE(error_content(folder.file("fifo")).is_null());
  EXPECT_TRUE(error_content(folder.path()).is_null());
  EXPECT_TRUE(error_content("/dev/zero").is_null());
}

TEST(NamedErrorFile, SaysWhatIsWrong) {
  const ScratchFolder folder;
  const std::string path = folder.file("error.json");
  const auto named = [&](const std::string& text) {
    return named_error_file(folder.write("error.json", text), false);
  };
  EXPECT_EQ(named_error_file(path, true), "");
  EXPECT_EQ(named(R"({"message": "x"})"), "");
  EXPECT_EQ(named_error_file(path, true), path);
  EXPECT_EQ(named(""), path + " (empty)");
  EXPECT_EQ(named("{"), path + " (broken: no JSON in torchrun's form)");
  EXPECT_EQ(named(std::string(5 << 20, ' ')), path + " (not read, as it is too long)");
  EXPECT_EQ(named_error_file(folder.path(), false), folder.path() + " (not read, as it is no regular file)");
}

TEST(FailureReport, NamesTheCauseFirst) {
  auto records = failed_ranks(3);
  records[0].status = SIGTERM;
  records[0].stopped = true;
  records[1].status = 0;
  records[2].status = SIGKILL;
  records[2].message = "line 1\nline 2\x1b\n";
  EXPECT_EQ(
      failure_report(records, 2),
      "lockstep run: FAILED: rank 2 (local rank 2, pid 102, prog) was killed by SIGKILL (Killed)\n"
      "  line 1\n  line 2\n"
      "  Nobody here sent it: maybe the out-of-memory killer (see dmesg, or the memory limit of the job).\n"
      "lockstep run: rank 0 (local rank 0, pid 100, prog) was killed by SIGTERM (Terminated) after it was "
      "told to stop\n"
      "lockstep run: rank 1 (local rank 1, pid 101, prog) exited with code 0\n");
  EXPECT_EQ(exit_code_of(SIGKILL), 137);
  EXPECT_EQ(exit_code_of(7 << 8), 7);
}

TEST(FailureReport, SaysWhenWhereAndWhatCameLast) {
  auto records = failed_ranks(1);
  records[0].node = "node 1, host b";
  records[0].host = "b";
  records[0].error_file = "/logs/error.json";
  records[0].last_lines = "first\nsecond";
  records[0].error = {
      {"message",
       {{"message", "E: x"}, {"extraInfo", {{"py_callstack", "Trace\nE: x\n"}, {"timestamp", "1"}}}}}};
  records[0].message = "E: x";
  const std::string report = failure_report(records, 0);
  EXPECT_TRUE(
      report.starts_with("lockstep run: FAILED: rank 0 (node 1, host b, local rank 0, pid 100, prog) exited "
                         "with code 1\n  Trace\n  E: x\n  at 19"))
      << report;
  EXPECT_TRUE(report.ends_with(
      " on host b, error file /logs/error.json\n  The end of its standard error:\n    first\n"
      "    second\n"))
      << report;
}

TEST(FailureReport, ShowsTheLastLinesOfEachRankThatFailed) {
  auto records = failed_ranks(12);
  for (auto& record : records) record.last_lines = "words of " + std::to_string(record.rank);
  records[3].stopped = true;
  const std::string report = failure_report(records, 0);
  EXPECT_NE(report.find("    words of 1\n"), std::string::npos);
  EXPECT_EQ(report.find("    words of 3\n"), std::string::npos) << "it was told to stop";
  EXPECT_EQ(report.find("    words of 11\n"), std::string::npos) << "enough is enough";
  EXPECT_NE(report.find("rank 11 (local rank 11"), std::string::npos);
}

TEST(FailureReport, BlamesTheRankThatBlamesNobody) {
  auto records = failed_ranks(3);
  const auto cause = [&](const std::string& first, const std::string& second, const std::string& third) {
    records[0].message = first;
    records[1].message = second;
    records[2].message = third;
    return root_cause(records);
  };
  EXPECT_EQ(cause("RemoteError: x", "", "DataError: y"), 2U);
  EXPECT_EQ(cause("ValueError: x", "", "DataError: y"), 0U);
  EXPECT_EQ(cause("", "", "DataError: y"), 0U);
  EXPECT_EQ(cause("CommunicationError: x", "TimeoutError: z", ""), 0U);
  cause("RemoteError: x", "", "DataError: y");
  records[2].status = SIGTERM;
  records[2].stopped = true;
  const std::string report = failure_report(records, 2);
  EXPECT_TRUE(
      report.starts_with("lockstep run: FAILED: rank 2 (local rank 2, pid 102, prog) reported an error, and "
                         "then was told to stop\n  DataError: y\nlockstep run: rank 0"))
      << report;
}

TEST(ProcessFailure, TravelsAsJson) {
  auto record = failed_ranks(1).front();
  record.host = "b";
  record.time = 77;
  record.error_file = "/x";
  record.message = "\xff not UTF-8";
  record.error = {{"message", "text"}};
  const auto text = to_json(record).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const ProcessFailure copy = read_process_failure(nlohmann::json::parse(text));
  EXPECT_EQ(copy.host, "b");
  EXPECT_EQ(copy.time, 77);
  EXPECT_EQ(copy.error_file, "/x");
  EXPECT_EQ(copy.status, 1 << 8);
  EXPECT_EQ(message_of(copy.error), "text");
  const auto whole = to_json(record);
  for (const auto& item : whole.items()) {
    // The time-out follows from the status.
    if (item.key() == "error" || item.key() == "status" || item.key() == "timed_out") continue;
    auto without = whole;
    without[item.key()] = nullptr;
    EXPECT_THROW(read_process_failure(without), DataError) << item.key();
  }
}

}  // namespace
}  // namespace lockstep::launch
