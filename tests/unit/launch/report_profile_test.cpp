// What a report takes from a trace of the profiler.
#include <gtest/gtest.h>

#include "lockstep/core/error.hpp"
#include "report/profile_reader.hpp"
#include "report/run_reader.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;
using lockstep::testing::contains_all;
using lockstep::testing::TemporaryFolder;
using lockstep::testing::write_bytes;

/// As torch.profiler writes it: the second thread's operator lies beside those of the first, and what has no
/// duration is no operator.
constexpr const char* kProfile = R"json({"schemaVersion": 1, "traceEvents": [
  {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "pid": 1, "tid": 1, "ts": 100.5, "dur": 1000,
   "args": {"name": "x", "dur": 9}},
  {"ph": "X", "cat": "cpu_op", "name": "aten::linear", "tid": 1, "ts": 200, "dur": 300, "args": {"list": [{"ts": 1}]}},
  {"ph": "X", "cat": "cpu_op", "name": "aten::addmm", "pid": 1, "tid": 1, "ts": 210, "dur": 250},
  {"ph": "X", "cat": "cpu_op", "name": "aten::addmm", "pid": 1, "tid": 2, "ts": 220, "dur": 100},
  {"ph": "i", "cat": "cpu_op", "name": "no operator", "tid": 1, "ts": 1},
  {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "tid": 1, "ts": 0, "dur": 5000}], "traceName": "x"})json";

TEST(Profile, GivesOperatorsTheirOwnTime) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "profile");
  write_bytes(folder / "profile" / "rank_0.9.pt.trace.json", "no trace");
  write_bytes(folder / "profile" / "rank_0.10.pt.trace.json", kProfile);
  write_bytes(folder / "profile" / "rank_1.11.pt.trace.json", "no trace");
  const RunRecord run = read_run(folder.path());
  EXPECT_TRUE(run.problems.empty());
  ASSERT_EQ(run.operators.size(), 2U);
  EXPECT_EQ(run.operators[0].name, "aten::addmm");
  EXPECT_EQ(run.operators[0].calls, 2);
  EXPECT_NEAR(run.operators[0].seconds, 350e-6, 1e-12);
  EXPECT_EQ(run.operators[1].name, "aten::linear");
  EXPECT_NEAR(run.operators[1].seconds, 50e-6, 1e-12);
  EXPECT_TRUE(
      contains_all(run.operators_note, {"profile/rank_0.10.pt.trace.json", "in 1 step of 1 ms each"}));
}

TEST(Profile, ListsKernelsWhereThereIsAGpu) {
  const TemporaryFolder folder;
  const fs::path path = folder / "rank_0.1.pt.trace.json";
  write_bytes(
      path, R"({"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "tid": 1, "ts": 0, "dur": 9},
                        {"ph": "X", "cat": "kernel", "name": "gemm<float>", "tid": 7, "ts": 3, "dur": 5}]})");
  const auto profile = read_profile(path);
  EXPECT_TRUE(profile.is_of_gpu);
  ASSERT_EQ(profile.operators.size(), 1U);
  EXPECT_EQ(profile.operators[0].name, "gemm<float>");
}

TEST(Profile, RefusesWhatIsNone) {
  const TemporaryFolder folder;
  const fs::path path = folder / "rank_0.1.pt.trace.json";
  const std::string whole = kProfile;
  for (const auto& text : {std::string(), std::string("[]"), std::string("{}"), std::string(1'000'000, '['),
                           whole.substr(0, 500)}) {
    write_bytes(path, text);
    EXPECT_THROWS(read_profile(path), DataError, path.string());
    EXPECT_THROWS(read_run(folder.path()), DataError, path.string());
  }
  write_bytes(
      path,
      R"({"traceEvents": [[{"ph": "X"}], {"ph": 3, "cat": null, "name": [], "ts": "x", "dur": -1}, 7, {}]})");
  EXPECT_TRUE(read_profile(path).operators.empty());
}

}  // namespace
}  // namespace lockstep::launch
