#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using testing::contains_all;
using testing::run_group;

/// Rank 1 sleeps in every step.
template <class Ddp>
void train(Ddp& ddp, const ProcessGroup& group, int steps, std::chrono::milliseconds sleep) {
  for (int step = 0; step < steps; ++step) {
    if (group.rank() == 1) std::this_thread::sleep_for(sleep);
    ddp(torch::ones({2, 64})).sum().backward();
    ddp.zero_grad();
  }
}

TEST(Statistics, SayWhatWasSentAndHowLongItTook) {
  run_group(2, [&](const ProcessGroup& group) {
    torch::nn::Sequential net(torch::nn::Linear(64, 64), torch::nn::Linear(64, 1));
    DistributedDataParallel ddp(net, group, {.bucket_cap_mb = 1e-6});
    const std::int64_t bytes = 4 * (64 * 64 + 64 + 64 + 1);
    EXPECT_EQ(ddp.statistics().bucket_bytes, (std::vector<std::int64_t>{bytes}));
    EXPECT_FALSE(ddp.statistics().buckets_rebuilt);
    train(ddp, group, 5, std::chrono::milliseconds(20));
    const DdpStatistics found = ddp.statistics();
    EXPECT_EQ(found.steps, 5);
    EXPECT_EQ(found.parameters, bytes / 4);
    EXPECT_EQ(found.gradient_bytes, bytes);
    EXPECT_EQ(found.bucket_bytes.size(), 4U);
    EXPECT_TRUE(found.buckets_rebuilt);
    EXPECT_GT(found.forward, 0);
    EXPECT_GT(found.backward_compute, 0);
    EXPECT_GE(found.communication, found.hidden);
    if (group.rank() == 0) {
      EXPECT_GT(found.exposed(), 10);  // It waits for the other, which sleeps.
    } else {
      EXPECT_GT(found.compute, 10);  // It sleeps for 20.
    }
    EXPECT_TRUE(
        contains_all(found.to_text(), {"5 steps, 4225 parameters", "4 buckets, in order of arrival"}));
  });
}

TEST(Statistics, AlonePrintNoTimes) {
  run_group(1, [&](const ProcessGroup& group) {
    torch::nn::Linear net(2, 1);
    DistributedDataParallel ddp(net, group);
    ddp(torch::ones({1, 2})).sum().backward();
    EXPECT_EQ(ddp.statistics().steps, 0);
    EXPECT_EQ(ddp.statistics().parameters, 3);
  });
}

/// What a job of two ranks writes to standard error if the second sleeps in every step.
std::string warnings_of(int steps, std::chrono::milliseconds sleep, std::vector<double>& scores) {
  ::testing::internal::CaptureStderr();
  run_group(2, [&](const ProcessGroup& group) {
    torch::nn::Linear net(64, 64);
    DistributedDataParallel ddp(net, group, {.stragglers = {.every = 4, .threshold = 0.7, .reports = 3}});
    train(ddp, group, steps, sleep);
    if (group.rank() == 0) scores = ddp.statistics().relative_scores;
  });
  return ::testing::internal::GetCapturedStderr();
}

TEST(Stragglers, ARankThatKeepsTheOthersWaitingIsNamedOnce) {
  std::vector<double> scores;
  const std::string text = warnings_of(22, std::chrono::milliseconds(30), scores);
  EXPECT_TRUE(
      contains_all(text, {"lockstep: warning: rank 1 is slow: it computed for",
                          "ms a step in the last 4 steps, the fastest, rank 0, for", "3 reports in a row"}));
  EXPECT_EQ(text.find("rank 1 is slow"), text.rfind("rank 1 is slow")) << text;
  ASSERT_EQ(scores.size(), 2U);
  EXPECT_EQ(scores[0], 1);
  EXPECT_LT(scores[1], 0.7);
}

TEST(Stragglers, TwoReportsAreNotEnough) {
  std::vector<double> scores;
  EXPECT_EQ(warnings_of(12, std::chrono::milliseconds(30), scores), "");
  EXPECT_EQ(scores.size(), 2U);
}

/// In the flight recorder, and therefore in every message from it.
TEST(Statistics, NameTheBucketsOnTheirWay) {
  run_group(2, [&](const ProcessGroup& group) {
    torch::nn::Sequential net(torch::nn::Linear(64, 64), torch::nn::Linear(64, 1));
    DistributedDataParallel ddp(net, group, {.bucket_cap_mb = 1e-6});
    train(ddp, group, 2, std::chrono::milliseconds(0));
    const testing::TemporaryFolder folder;
    const auto trace = nlohmann::json::parse(testing::read_bytes(group.write_trace(folder.path())));
    std::vector<std::string> labels;
    for (const auto& entry : trace.at("entries")) {
      if (entry.at("profiling_name").get<std::string>().ends_with(":all_reduce"))
        labels.push_back(entry.at("label"));
    }
    // All gradients at once in the first step, and a bucket for each parameter in the second.
    EXPECT_EQ(labels, (std::vector<std::string>{"bucket 0", "bucket 0", "bucket 1", "bucket 2", "bucket 3"}));
  });
}

}  // namespace
}  // namespace lockstep
