// Traces of training steps by LibTorch's own profiler.
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.hpp"
#include "lockstep/train/profiler.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using testing::TemporaryFolder;

void train_one_step(torch::nn::Linear& model) { model(torch::ones({4, 3})).sum().backward(); }

/// How often each name is in a trace.
std::map<std::string, int> names_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  const auto document = nlohmann::json::parse(file);
  std::map<std::string, int> names;
  for (const auto& event : document.at("traceEvents")) {
    if (event.value("ph", "") == "X") ++names[event.at("name").get<std::string>()];
  }
  return names;
}

std::vector<std::filesystem::path> profile(const ProfileOptions& options, int steps) {
  torch::nn::Linear model(3, 2);
  Profiler profiler(options, 1);
  for (int i = 0; i < steps; ++i) {
    train_one_step(model);
    profiler.step();
  }
  profiler.stop();
  return profiler.traces();
}

TEST(Profiler, RecordsTheStepsOfItsSchedule) {
  const TemporaryFolder folder;
  const auto traces = profile({.schedule_option = {.skip_first = 1, .wait = 1, .warmup = 1, .active = 2},
                               .output_trace_dir = folder / "made" / "here"},
                              9);
  ASSERT_EQ(traces.size(), 1U);
  EXPECT_EQ(traces[0], folder / "made" / "here" / "rank_1.4.pt.trace.json");
  const auto names = names_in(traces[0]);
  EXPECT_EQ(names.at("ProfilerStep#3"), 1);
  EXPECT_EQ(names.at("ProfilerStep#4"), 1);
  for (const char* step : {"ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2", "ProfilerStep#5"})
    EXPECT_EQ(names.count(step), 0U) << step;
  // Forward and backward of two steps.
  EXPECT_EQ(names.at("aten::addmm"), 2);
  EXPECT_EQ(names.at("autograd::engine::evaluate_function: AddmmBackward0"), 2);
}

TEST(Profiler, WritesEachCycleAndWhatIsUnderWayAtTheEnd) {
  const TemporaryFolder folder;
  const auto traces = profile({.schedule_option = {.wait = 1, .warmup = 0, .active = 2, .repeat = 0},
                               .output_trace_dir = folder.path()},
                              8);
  std::vector<std::string> written;
  for (const auto& trace : traces) written.push_back(trace.filename());
  EXPECT_EQ(written, (std::vector<std::string>{"rank_1.2.pt.trace.json", "rank_1.5.pt.trace.json",
                                               "rank_1.8.pt.trace.json"}));
  EXPECT_EQ(names_in(traces[1]).at("aten::addmm"), 2);
  EXPECT_EQ(names_in(traces[2]).at("aten::addmm"), 1);
}

TEST(Profiler, RefusesWhatRecordsNothingAndASecondOne) {
  EXPECT_THROWS(Profiler({.schedule_option = {.active = 0}}, 0), UsageError, "active >= 1", "active=0");
  const TemporaryFolder folder;
  Profiler first({.schedule_option = {.warmup = 0}, .output_trace_dir = folder.path()}, 0);
  EXPECT_THROWS(Profiler({}, 0), UsageError, "already has a profiler");
}

TEST(Profiler, SaysWhereATraceCannotBeWritten) {
  const TemporaryFolder folder;
  testing::write_bytes(folder / "file", "no folder");
  torch::nn::Linear model(3, 2);
  Profiler profiler({.schedule_option = {.warmup = 0, .active = 1}, .output_trace_dir = folder / "file"}, 0);
  train_one_step(model);
  EXPECT_THROWS(profiler.step(), Error, "cannot write the trace", "file/rank_0.0.pt.trace.json");
}

}  // namespace
}  // namespace lockstep
