#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>

#include "failure/error_file.hpp"
#include "failure/failure_analysis.hpp"
#include "launcher_process.hpp"
#include "lockstep/core/error.hpp"
#include "process/words.hpp"
#include "rendezvous/messages.hpp"

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
  EXPECT_FALSE(is_secondary(whole));
  EXPECT_TRUE(is_secondary(content(R"({"message": {"message": "x", "extraInfo": {"is_secondary": true}}})")));
  EXPECT_FALSE(is_secondary(content(R"({"message": {"message": "x", "extraInfo": {"is_secondary": 1}}})")));
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

TEST(ErrorContent, ThatIsHugeIsReduced) {
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
  EXPECT_EQ(named("{"), path + " (damaged: not JSON in torchrun's format)");
  EXPECT_EQ(named(std::string(5 << 20, ' ')), path + " (not read, as it is too long)");
  EXPECT_EQ(named_error_file(folder.path(), false),
            folder.path() + " (not read, as it is not a regular file)");
}

TEST(FailureReport, NamesTheCauseFirst) {
  auto records = failed_ranks(3);
  records[0].status = SIGTERM;
  records[0].stopped = true;
  records[1].status = 0;
  records[2].status = SIGKILL;
  records[2].message = "line 1\nline 2\x1b\n";
  EXPECT_EQ(failure_report(records, 2),
            "lockstep run: FAILED: rank 2 (local rank 2, pid 102, prog) was killed by SIGKILL (Killed)\n"
            "  line 1\n  line 2\n"
            "  The launcher did not send it. No cgroup tells whether the kernel's OOM killer did: see dmesg, "
            "or the memory limit of the job.\n"
            "lockstep run: rank 0 was killed by SIGTERM (Terminated) after it was asked to stop\n"
            "lockstep run: rank 1 exited with code 0\n"
            "lockstep run: root cause: rank 2 (local rank 2, pid 102, prog) was killed by SIGKILL (Killed): "
            "line 1\n");
  EXPECT_EQ(exit_code_of(SIGKILL), 137);
  EXPECT_EQ(exit_code_of(7 << 8), 7);
}

TEST(FailureReport, ExplainsASigkill) {
  auto failures = failed_ranks(1);
  failures[0].status = SIGKILL;
  failures[0].peak_memory = std::int64_t{5} << 29;
  const auto report = [&](std::optional<std::int64_t> oom_kills) {
    failures[0].oom_kills = oom_kills;
    return failure_report(failures, 0);
  };
  EXPECT_NE(
      report(1).find("killed by the kernel's OOM killer (1 process(es) of this job on this host; this one "
                     "had 2.5 GiB)"),
      std::string::npos)
      << report(1);
  EXPECT_NE(report(0).find("the kernel's OOM killer killed no process of this job: another process did"),
            std::string::npos)
      << report(0);
  EXPECT_NE(report(std::nullopt).find("see dmesg"), std::string::npos);
}

TEST(FailureReport, DoesNotGrowWithTheRanks) {
  const auto lines = [](const std::string& text) { return std::count(text.begin(), text.end(), '\n'); };
  auto obeyed = failed_ranks(96);
  for (std::size_t i = 1; i < obeyed.size(); ++i) {
    obeyed[i].status = i % 7 == 0 ? SIGKILL : SIGTERM;
    obeyed[i].stopped = true;
    obeyed[i].killed = i % 7 == 0;
  }
  const std::string report = failure_report(obeyed, 0);
  EXPECT_EQ(lines(report), 4) << report;
  EXPECT_NE(report.find("ranks 1-6, 8-13,"), std::string::npos) << report;
  auto victims = failed_ranks(96);
  for (std::size_t i = 1; i < victims.size(); ++i) {
    victims[i].message = "CommunicationError: rank 0 is gone";
    victims[i].is_secondary = true;
  }
  EXPECT_EQ(lines(failure_report(victims, 0)), 5) << failure_report(victims, 0);
  EXPECT_LT(lines(failure_report(failed_ranks(96), 0)), 15) << failure_report(failed_ranks(96), 0);
}

TEST(FailureReport, MergesRanksWithTheSameError) {
  auto records = failed_ranks(4);
  for (auto& record : records) record.message = "UsageError: '--epohcs' is unknown", record.status = 2 << 8;
  records[2].message = "DataError: y";
  EXPECT_EQ(failure_report(records, 0),
            "lockstep run: FAILED: rank 0 (local rank 0, pid 100, prog) exited with code 2\n"
            "  UsageError: '--epohcs' is unknown\n"
            "lockstep run: rank 2 (local rank 2, pid 102, prog) exited with code 2\n"
            "  DataError: y\n"
            "lockstep run: ranks 1, 3 exited with code 2 with the same error\n"
            "lockstep run: root cause: rank 0 (local rank 0, pid 100, prog) exited with code 2: UsageError: "
            "'--epohcs' is unknown\n");
}

TEST(FailureReport, HasTimeHostAndLastLines) {
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
  EXPECT_NE(report.find("ranks 10-11 exited with code 1 as well\n"), std::string::npos) << report;
}

/// What a rank ended with.
struct End {
  std::string message;
  bool is_secondary = false;
  int status = 1 << 8;
};

std::size_t cause_of(const std::vector<End>& ends) {
  auto failures = failed_ranks(static_cast<int>(ends.size()));
  for (std::size_t i = 0; i < ends.size(); ++i) {
    failures[i].message = ends[i].message;
    failures[i].is_secondary = ends[i].is_secondary;
    failures[i].status = ends[i].status;
  }
  return root_cause(failures);
}

const End kSilent{""};
const End kOwnError{"DataError: y"};
const End kLostPeer{"CommunicationError: x", true};
const End kKilled{"", false, SIGKILL};

TEST(RootCause, IsTheFirstRankThatFailedByItself) {
  EXPECT_EQ(cause_of({kLostPeer, kSilent, kOwnError}), 2U);
  EXPECT_EQ(cause_of({{"ValueError: x"}, kSilent, kOwnError}), 0U);
  EXPECT_EQ(cause_of({kSilent, kSilent, kOwnError}), 0U);
  EXPECT_EQ(cause_of({kLostPeer, kLostPeer, kSilent}), 2U) << "whom the others lost";
}

TEST(RootCause, IsNotReadFromTheWordsOfAMessage) {
  EXPECT_EQ(cause_of({{"TimeoutError: the data server does not answer"}, kSilent, kOwnError}), 0U)
      << "a Python program's own TimeoutError";
  EXPECT_EQ(cause_of({{"CommunicationError: of a program of somebody's"}, kOwnError}), 0U);
}

TEST(RootCause, IsACrashEvenIfAVictimWasReportedFirst) {
  EXPECT_EQ(cause_of({kLostPeer, kLostPeer, kKilled}), 2U);
  EXPECT_EQ(cause_of({kLostPeer, {"", false, SIGSEGV}}), 1U);
  EXPECT_EQ(cause_of({kLostPeer, kOwnError, kKilled}), 2U);
  EXPECT_EQ(cause_of({kSilent, kKilled}), 1U) << "it may have lost its partner";
  EXPECT_EQ(cause_of({kOwnError, kKilled}), 0U);
  EXPECT_EQ(cause_of({kLostPeer, {"", false, SIGABRT}}), 1U);
  EXPECT_EQ(cause_of({kSilent, {"", false, SIGABRT}}), 0U) << "a program may abort because a peer is gone";
}

TEST(RootCause, IsNotARankThatTheLauncherKilled) {
  auto failures = failed_ranks(2);
  failures[0].is_secondary = true;
  failures[1].status = SIGKILL;
  failures[1].stopped = failures[1].killed = true;
  failures[1].oom_kills = 1;
  EXPECT_EQ(root_cause(failures), 0U);
  failures[1].killed = false;
  EXPECT_EQ(root_cause(failures), 1U) << "the OOM killer came before the shutdown timeout";
}

TEST(RootCause, IsNotARankThatExitedWhenAsked) {
  auto failures = failed_ranks(2);
  failures[0].is_secondary = true;
  failures[1].status = SIGTERM;
  failures[1].stopped = true;
  EXPECT_EQ(root_cause(failures), 0U);
  failures[1].status = 1 << 8;
  EXPECT_EQ(root_cause(failures), 0U);
}

TEST(RootCause, MayBeARankThatWasStopped) {
  auto failures = failed_ranks(3);
  failures[0].message = "RemoteError: x";
  failures[0].is_secondary = true;
  failures[2].message = "DataError: y";
  failures[2].status = SIGTERM;
  failures[2].stopped = true;
  ASSERT_EQ(root_cause(failures), 2U);
  const std::string report = failure_report(failures, 2);
  EXPECT_TRUE(
      report.starts_with("lockstep run: FAILED: rank 2 (local rank 2, pid 102, prog) reported an error, and "
                         "then was stopped\n  DataError: y\nlockstep run: rank 0"))
      << report;
}

TEST(ProcessFailure, TravelsAsJson) {
  auto record = failed_ranks(1).front();
  record.host = "b";
  record.time = 77;
  record.error_file = "/x";
  record.is_secondary = true;
  record.oom_kills = 2;
  record.message = "\xff not UTF-8";
  record.error = {{"message", "text"}};
  const std::string text = encode(RankFailed{1, record});
  const auto message = decode<NodeMessage>(text);
  const ProcessFailure copy = std::get<RankFailed>(*message).failure;
  EXPECT_EQ(copy.host, "b");
  EXPECT_EQ(copy.time, 77);
  EXPECT_EQ(copy.error_file, "/x");
  EXPECT_TRUE(copy.is_secondary);
  EXPECT_EQ(copy.oom_kills, 2);
  EXPECT_EQ(copy.status, 1 << 8);
  EXPECT_EQ(message_of(copy.error), "text");
  const auto whole = nlohmann::json::parse(text);
  for (const auto& item : whole.at("failure").items()) {
    if (item.key() == "error") continue;
    auto without = whole;
    for (const nlohmann::json& wrong : {nlohmann::json(), nlohmann::json(1e300)}) {
      without["failure"][item.key()] = wrong;
      EXPECT_THROW(decode<NodeMessage>(without.dump()), DataError) << item.key();
    }
  }
}

/// Which has three bytes for each that is none.
TEST(ProcessFailure, TravelsWithTheLongestTextThatIsNotUtf8) {
  auto record = failed_ranks(1).front();
  record.last_lines = std::string(16 * 1024, '\xff');
  EXPECT_TRUE(decode<NodeMessage>(encode(RankFailed{1, record})));
  EXPECT_TRUE(decode<NodeMessage>(encode(RoundEnded{.round = 1, .failures = {record}})));
}

TEST(FailureReport, CutsLongMessagesBetweenCharacters) {
  auto failures = failed_ranks(1);
  // One byte before letters of two.
  failures[0].message = "x";
  while (failures[0].message.size() < 10'000) failures[0].message += "\u00e4";
  const std::string report = failure_report(failures, 0);
  EXPECT_LT(report.size(), 6000U);
  EXPECT_NE(report.find("\u00e4 ...\n"), std::string::npos) << "no letter is cut in two";
}

}  // namespace
}  // namespace lockstep::launch
