#include <chrono>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "job.hpp"
#include "lockstep/core/runtime/program.hpp"

namespace lockstep::testing {
namespace {

// ---- Missing ranks: in a warning, and in the errors of the ranks that wait

const Environment kWarnSoon{{"LOCKSTEP_WARN_AFTER", "1"}};

TEST(ARankThatSleeps, IsNamedWithItsPlaceByAWarningAndByTheTimeout) {
  const Finished job = run_probe(3, {"awaited", "sleeps"}, {"--shutdown-timeout=1"}, kWarnSoon);
  EXPECT_EQ(job.status, kTimeoutExitCode);
  for (const int rank : {0, 2}) {
    EXPECT_TRUE(contains_all(error_of_rank(job, rank),
                             {"all_reduce #4 (Float [2], 8 bytes) timed out after ",
                              rank == 0 ? "rank 2 has arrived; rank 1 is in forward, step 0"
                                        : "rank 0 has arrived; rank 1 is in forward, step 0"}));
  }
  // Its place: the stack is collected before it is stopped.
  EXPECT_EQ(count_lines_with(job.err, "stacks of rank 1 (pid "), 1) << job.err;
  EXPECT_TRUE(contains_all(job.err, {"probe::awaited("}));
  EXPECT_EQ(count_lines_with(job.err,
                             "lockstep: rank 0 has been waiting in all_reduce #4 (Float [2], 8 bytes) for 1"),
            1)
      << job.err;
}

TEST(ARankThatIsStopped, IsNamedAsOneThatDoesNotAnswer) {
  const auto start = std::chrono::steady_clock::now();
  const Finished job = run_probe(3, {"awaited", "stops"}, {"--shutdown-timeout=1"});
  EXPECT_EQ(job.status, kTimeoutExitCode);
  // Its stack is not waited for (10 s), because it cannot respond.
  EXPECT_TRUE(contains_all(job.err, {"stacks of rank 1 (pid ", "T (stopped)"}));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(12));
  EXPECT_TRUE(contains_all(
      error_of_rank(job, 0),
      {"all_reduce #4", "timed out", "rank 2 has arrived; rank 1 does not answer: stopped, or gone"}));
}

/// A rank's operations are counted, so that the place where it left can be found.
TEST(ARankThatLeaves, IsNamedWithTheNumberOfItsOperations) {
  for (const std::string how : {"exits", "returns"}) {
    const Finished job = run_probe(3, {"awaited", how}, {"--shutdown-timeout=10"});
    EXPECT_EQ(job.status, 1);
    EXPECT_TRUE(contains_all(job.err, {"all_reduce #4", "rank 1 left the group after 3 operations"}));
  }
}

/// With any backend: shared memory reports the missing rank itself, and the heartbeat its place.
TEST(ARankThatSleeps, IsNamedOverSharedMemoryToo) {
  const Finished job = run_probe(3, {"awaited", "sleeps", "shm"}, {"--shutdown-timeout=1"});
  EXPECT_EQ(job.status, kTimeoutExitCode);
  EXPECT_TRUE(contains_all(error_of_rank(job, 0), {"all_reduce #4", "rank 1 is in forward, step 0"}));
}

// ---- Ranks with different calls: an error on all of them, not a wrong number, signal or timeout

const Environment kDetail{{"LOCKSTEP_DEBUG", "detail"}};

/// What differs, the number of the call, and the text for both sides.
struct Sides {
  const char* what;
  int number;
  const char* one;
  const char* another;
};

class Disagreement : public ::testing::TestWithParam<Sides> {};

/// On Gloo with LOCKSTEP_DEBUG=detail. Also for operations that all ranks have called before.
TEST_P(Disagreement, IsAnErrorOnAllRanksThatNamesBothSides) {
  const auto [what, number, one, another] = GetParam();
  for (const int ranks : {2, 3}) {
    const Finished job = run_probe(ranks, {"disagree", what}, {"--shutdown-timeout=10"}, kDetail);
    EXPECT_EQ(job.status, 1) << job.err;
    EXPECT_TRUE(is_readable(job));
    for (int rank = 0; rank < ranks; ++rank) {
      const bool is_odd = rank == 1;
      EXPECT_TRUE(contains_all(error_of_rank(job, rank),
                               {"the ranks do different things in collective #" + std::to_string(number) +
                                    ": " + (is_odd ? another : one) + " (called by ",
                                ") here, but rank " + std::string(is_odd ? "0" : "1") + " does " +
                                    (is_odd ? one : another) + " (called by "}));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Disagreement,
    ::testing::Values(Sides{"size", 3, "all_reduce of sum, Float [1000]", "all_reduce of sum, Float [2000]"},
                      Sides{"dtype", 3, "all_reduce of sum, Float [4]", "all_reduce of sum, Int [4]"},
                      Sides{"reduction", 3, "all_reduce of sum, Float [4]", "all_reduce of max, Float [4]"},
                      Sides{"operation", 3, "all_reduce of sum, Float [4]", "broadcast from 0, Float [4]"},
                      Sides{"root", 3, "broadcast from 0, Float [4]", "broadcast from 1, Float [4]"},
                      Sides{"gathered", 3, "gather to 0, Float [3]", "gather to 0, Float [4]"},
                      Sides{"order_of_starts", 8, "all_reduce of sum, Float [200]",
                            "all_reduce of sum, Float [300]"}),
    [](const auto& sides) { return std::string(sides.param.what); });

TEST(DetailedChecks, SayWhereTheProgramCalls) {
  const Finished off = run_probe(2, {"disagree", "dtype"}, {"--shutdown-timeout=1"}, kDetail);
  EXPECT_TRUE(contains_all(error_of_rank(off, 0), {"all_reduce of sum, Float [4] (called by ",
                                                   "Int [4] (called by ", " in probe)"}));
}

/// Without verification, more bytes than a rank expects end its process in Gloo's own thread: the log says
/// what to do.
TEST(UnverifiedCalls, ThatDifferSayHowToFindOut) {
  const Finished job = run_probe(2, {"disagree", "size"}, {"--shutdown-timeout=1"});
  EXPECT_NE(job.status, 0);
  EXPECT_TRUE(contains_all(job.err, {"LOCKSTEP_DEBUG=detail"}));
}

// ---- Traces

TEST(Traces, TellWhichRankArrivesLate) {
  const ScratchFolder folder;
  const Finished job = run_probe(3, {"traced", folder.file("traces")});
  ASSERT_EQ(job.status, 0) << job.err;
  const Finished report =
      launch::launch({"trace", folder.file("traces"), "--chrome", folder.file("chrome.json")});
  EXPECT_EQ(report.status, 0) << report.err;
  EXPECT_TRUE(contains_all(report.out,
                           {"group world: the last collective that all ranks have completed is all_reduce #5",
                            "group world/sub/1", "for rank 1\n", "came last"}));
  const auto chrome = nlohmann::json::parse(launch::read_file(folder.file("chrome.json")));
  std::set<std::string> names;
  for (const auto& event : chrome.at("traceEvents")) names.insert(event.at("name").get<std::string>());
  for (const char* name : {"all_reduce #5", "step 4", "wait for the last rank", "process_name"})
    EXPECT_TRUE(names.contains(name)) << name;
}

TEST(Traces, ShowWhatAStepComputes) {
  const ScratchFolder folder;
  const Finished job = run_probe(2, {"train"}, {}, {{"LOCKSTEP_TRACE_DIR", folder.file("traces")}});
  ASSERT_EQ(job.status, 0) << job.err;
  const Finished report =
      launch::launch({"trace", folder.file("traces"), "--chrome", folder.file("chrome.json")});
  EXPECT_EQ(report.status, 0) << report.err;
  const auto chrome = nlohmann::json::parse(launch::read_file(folder.file("chrome.json")));
  std::multiset<std::string> names;
  for (const auto& event : chrome.at("traceEvents")) names.insert(event.at("name").get<std::string>());
  // Five steps on two ranks.
  for (const char* name : {"forward", "backward", "optimizer"}) EXPECT_EQ(names.count(name), 10U) << name;
}

TEST(Traces, AreWrittenWhenAnOperationFailsAndNameWhoIsMissing) {
  const ScratchFolder folder;
  const Finished job = run_probe(2, {"awaited", "sleeps"}, {"--shutdown-timeout=1"},
                                 {{"LOCKSTEP_TRACE_DIR", folder.file("traces")}});
  EXPECT_EQ(job.status, kTimeoutExitCode);
  const auto trace = nlohmann::json::parse(launch::read_file(folder.file("traces/trace-rank-0.json")));
  EXPECT_EQ(trace.at("entries").size(), 4U);
  EXPECT_EQ(trace.at("entries").back().at("state"), "failed");
  EXPECT_EQ(trace.at("entries").back().at("profiling_name"), "gloo:all_reduce");
  EXPECT_EQ(trace.at("entries").back().at("collective_seq_id"), 4);
  const Finished report = launch::launch({"trace", folder.file("traces")});
  EXPECT_TRUE(contains_all(report.out, {"rank 0 on ", "failed in all_reduce #4"}));
  // The missing rank wrote its own trace when it was asked for its stack.
  EXPECT_TRUE(contains_all(report.out,
                           {"rank 1 on ", "ended all_reduce #3", "never arrived at collective #4: rank 1"}));
}

TEST(Traces, AreWrittenOnRequest) {
  const ScratchFolder folder;
  const auto job =
      start_job({LOCKSTEP_PROBE, "hangs", "2"}, 2, {}, {{"LOCKSTEP_TRACE_DIR", folder.file("traces")}});
  ASSERT_TRUE(launch::eventually([&] { return job->out().find("rank 1 hangs") != std::string::npos; }));
  EXPECT_EQ(launch::launch({"trace", "--request", folder.file("traces")}).status, 0);
  for (const std::string rank : {"0", "1"}) {
    const std::string file = folder.file("traces/trace-rank-" + rank + ".json");
    EXPECT_TRUE(launch::eventually([&] { return std::filesystem::exists(file); }));
  }
  EXPECT_TRUE(contains_all(launch::launch({"trace", folder.file("traces")}).out, {"written for: a request"}));
  job->signal(SIGINT);
  EXPECT_EQ(job->wait().status, 128 + SIGINT);
}

TEST(TraceCommand, SaysWhatIsWrong) {
  const ScratchFolder folder;
  EXPECT_EQ(launch::launch({"trace"}).status, 2);
  EXPECT_TRUE(contains_all(launch::launch({"trace", folder.file("")}).err, {"holds no trace-rank-N.json"}));
  folder.write("trace-rank-0.json", "{}");
  EXPECT_TRUE(contains_all(launch::launch({"trace", folder.file("")}).err, {"is not a trace of a rank"}));
}

}  // namespace
}  // namespace lockstep::testing
