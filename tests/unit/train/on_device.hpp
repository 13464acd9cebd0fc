#pragma once

#include <ATen/ops/allclose.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>

#include "lockstep/core/environment.hpp"
#include "lockstep/train/accelerator.hpp"
#include "support/gpu.hpp"
#include "support/ranks.hpp"

namespace lockstep::testing {

inline void expect_close(const std::vector<at::Tensor>& one, const std::vector<at::Tensor>& other,
                         double tolerance = 1e-5) {
  ASSERT_EQ(one.size(), other.size());
  for (std::size_t i = 0; i < one.size(); ++i)
    EXPECT_TRUE(at::allclose(one[i], other[i], tolerance, tolerance)) << i;
}

/// Tests that run on the CPU and, if a driver is installed, on the first GPU.
class OnDevice : public ::testing::TestWithParam<std::string> {
 protected:
  using Body = std::function<void(Accelerator&)>;

  void SetUp() override {
    if (GetParam() != "cpu") LOCKSTEP_NEEDS_GPU();
  }

  at::Device device() const { return at::Device(GetParam()); }
  bool is_cuda() const { return device().is_cuda(); }

  /// Threads as ranks, all on the one device.
  void run(int ranks, const Body& body, const AcceleratorOptions& options = {},
           std::chrono::seconds timeout = std::chrono::seconds(60)) const {
    const Store store = Store::in_memory();
    run_ranks(ranks, [&](int rank) {
      World world;
      world.rank = world.local_rank = rank;
      world.world_size = world.local_world_size = ranks;
      run_rank(world, store, body, options, timeout);
    });
  }

  void run_rank(const World& world, const Store& store, const Body& body, AcceleratorOptions options,
                std::chrono::seconds timeout) const {
    options.device = GetParam();
    const auto backend = is_cuda() && world.world_size > 1 ? CommBackend::gloo : CommBackend::automatic;
    const ProcessGroup group(world.rank, world.world_size, store,
                             {.backend = backend, .device = device(), .timeout = timeout});
    Accelerator accelerator(world, group, options);
    body(accelerator);
  }
};

/// Tests of two ranks that communicate during backward. On a GPU they need two processes, because all threads
/// of a process share the thread that runs backward on that GPU, and one rank would wait in it for the other:
///
///     lockstep run --nproc-per-node 2 device_test --gtest_filter='*RanksOnDevice*'
class RanksOnDevice : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    if (!IsSkipped() && is_cuda() && job().world_size != 2) GTEST_SKIP() << "needs two processes";
  }

  /// One rank, or two: those of the job, if there is one.
  void run(int ranks, const Body& body, const AcceleratorOptions& options = {}) const {
    if (ranks != job().world_size || ranks == 1) return OnDevice::run(ranks, body, options);
    static const Store store = Store::connect(job());
    static int runs = 0;
    run_rank(job(), store.with_prefix("run " + std::to_string(++runs)), body, options,
             std::chrono::seconds(60));
  }

 private:
  static const World& job() {
    static const World world = World::from_environment(process_environment());
    return world;
  }
};

}  // namespace lockstep::testing
