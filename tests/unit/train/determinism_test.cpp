#include "lockstep/train/determinism.hpp"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "lockstep/train/accelerator.hpp"

namespace lockstep {
namespace {

class Determinism : public ::testing::Test {
 protected:
  void SetUp() override { forget_variables(); }
  void TearDown() override {
    forget_variables();
    context.setDeterministicAlgorithms(false, false);
    context.setDeterministicCuDNN(false);
  }

  static void forget_variables() {
    for (const auto* name : {"CUBLAS_WORKSPACE_CONFIG", "NCCL_ALGO", "NCCL_PROTO"}) ::unsetenv(name);
  }
  void expect_deterministic() const {
    EXPECT_TRUE(context.deterministicAlgorithms());
    EXPECT_FALSE(context.deterministicAlgorithmsWarnOnly());
    EXPECT_TRUE(context.deterministicCuDNN());
    EXPECT_FALSE(context.benchmarkCuDNN());
    EXPECT_STREQ(std::getenv("CUBLAS_WORKSPACE_CONFIG"), ":4096:8");
  }

  at::Context& context = at::globalContext();
};

TEST_F(Determinism, IsToldToAllThatChooses) {
  context.setBenchmarkCuDNN(true);
  use_deterministic_operations();
  expect_deterministic();
  EXPECT_STREQ(std::getenv("NCCL_ALGO"), "Ring");
  EXPECT_STREQ(std::getenv("NCCL_PROTO"), "Simple");
}

TEST_F(Determinism, LeavesWhatTheEnvironmentSays) {
  ::setenv("NCCL_ALGO", "Tree", 1);
  use_deterministic_operations();
  EXPECT_STREQ(std::getenv("NCCL_ALGO"), "Tree");
}

TEST_F(Determinism, BeginsBeforeTheGroupIsMade) {
  const Accelerator accelerator(World{}, {.device = "cpu", .deterministic = true});
  expect_deterministic();
}

}  // namespace
}  // namespace lockstep
