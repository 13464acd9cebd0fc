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

/// Tests that run on the CPU and, if a driver is installed, on a GPU: the first, or that of the process in a
/// job whose host has one for each.
class OnDevice : public ::testing::TestWithParam<std::string> {
 protected:
  using Body = std::function<void(Accelerator&)>;

  void SetUp() override {
    if (GetParam() != "cpu") LOCKSTEP_NEEDS_GPU();
  }

  at::Device device() const {
    if (GetParam() == "cpu") return at::kCPU;
    return {at::kCUDA, static_cast<at::DeviceIndex>(has_gpu_for_each() ? job().local_rank : 0)};
  }
  bool is_cuda() const { return device().is_cuda(); }

  /// Threads as ranks, all on the one device.
  void run(int ranks, const Body& body, const AcceleratorOptions& options = {},
           std::chrono::seconds timeout = std::chrono::seconds(60)) const {
    const Store store = Store::in_memory();
    const auto backend = is_cuda() && ranks > 1 ? CommBackend::gloo : CommBackend::automatic;
    run_ranks(ranks, [&](int rank) {
      World world;
      world.rank = world.local_rank = rank;
      world.world_size = world.local_world_size = ranks;
      run_rank(world, store, backend, body, options, timeout);
    });
  }

  void run_rank(const World& world, const Store& store, CommBackend backend, const Body& body,
                AcceleratorOptions options, std::chrono::seconds timeout) const {
    options.device = device().str();
    const ProcessGroup group(world.rank, world.world_size, store,
                             {.backend = backend, .device = device(), .timeout = timeout});
    Accelerator accelerator(world, group, options);
    body(accelerator);
  }

  static const World& job() {
    static const World world = World::from_environment(process_environment());
    return world;
  }
  static bool has_gpu_for_each() { return cuda_device_count() >= job().local_world_size; }
};

/// Tests of several ranks that communicate during backward. On a GPU they need as many processes, because all
/// threads of a process share the thread that runs backward on that GPU, and one rank would wait in it for
/// the other. These communicate over NCCL if the host has a GPU for each, or if each has another NCCL_HOSTID,
/// with which NCCL takes one GPU for those of several hosts; otherwise over Gloo:
///
///     lockstep run --nproc-per-node 2 device_test --gtest_filter='*RanksOnDevice*'
///     lockstep run --nproc-per-node 2 sh -c 'NCCL_HOSTID=$RANK exec device_test
///     --gtest_filter=*RanksOnDevice*'
class RanksOnDevice : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    if (!IsSkipped() && is_cuda() && job().world_size != 2) GTEST_SKIP() << "needs two processes";
  }

  /// The ranks of the job, or several threads.
  static int all_ranks() { return job().world_size > 1 ? job().world_size : 3; }

  /// One rank, or those of the job, if there is one.
  void run(int ranks, const Body& body, const AcceleratorOptions& options = {}) const {
    if (ranks != job().world_size || ranks == 1) return OnDevice::run(ranks, body, options);
    static const Store store = Store::connect(job());
    static int runs = 0;
    const bool has_nccl = has_gpu_for_each() || find_variable(process_environment(), "NCCL_HOSTID");
    run_rank(job(), store.with_prefix("run " + std::to_string(++runs)),
             is_cuda() && !has_nccl ? CommBackend::gloo : CommBackend::automatic, body, options,
             std::chrono::seconds(60));
  }
};

}  // namespace lockstep::testing
