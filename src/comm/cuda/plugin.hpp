#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "lockstep/comm/cuda.hpp"

namespace lockstep::comm {

/// Parameters of an NCCL communicator.
struct NcclRequest {
  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0;
  int size = 1;
  int device_index = 0;
  std::chrono::milliseconds timeout{0};
  /// The group's unique name, the same on all its ranks, and its ranks in the world: shown in NCCL's log and
  /// in dumps of c10d's flight recorder.
  std::string name = {};
  std::vector<int> ranks = {};
  bool high_priority_streams = false;
  /// The communicator to split this one from (ncclCommSplit). It contains all members of this one; its other
  /// ranks call sit_out_split(). Null: create a new one. `color`: the same for all members.
  c10::intrusive_ptr<c10d::Backend> parent = {};
  int color = 0;
};

/// Memory that several graphs share, for what they use during a replay: at::cuda::MempoolId_t.
using GraphPool = std::pair<unsigned long long, unsigned long long>;

/// What one stream was given between begin() and end(), to be launched again as a whole: at::cuda::CUDAGraph.
class CudaGraph {
 public:
  CudaGraph() = default;
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  virtual ~CudaGraph() = default;
  /// Work for the current stream, which is not the default one, is recorded from now on, and not run. Calls
  /// that wait for the device fail in this thread.
  virtual void begin() = 0;
  /// Throws if something could not be recorded, or would read or write memory of the host that is gone at a
  /// replay. Then the allocator and the random generators are as they were before begin().
  virtual void end() = 0;
  virtual void replay() = 0;
};

/// Blocks and threads of a kernel's launch.
struct Grid {
  std::int64_t blocks = 1;
  int threads = 1;
  /// The second dimension of the blocks.
  int blocks_y = 1;
  /// Of dynamic shared memory.
  int shared_bytes = 0;
};

/// What kernels are compiled and launched for.
struct DeviceFacts {
  /// NVRTC's name: "sm_90".
  std::string architecture;
  int multiprocessors = 1;
};

/// The interface of the CUDA library, as plain functions, so that the core does not link CUDA.
struct CudaPlugin {
  int version;
  int (*device_count)();
  /// The reason why this process can use no device (no device, driver too old); "" if there is one.
  std::string (*device_problem)();
  void (*set_device)(int index);
  void (*synchronize)(int index);
  /// Unique to the GPU: "GPU-1c5e...".
  std::string (*device_uuid)(int index);
  /// The model name: "NVIDIA H200".
  std::string (*device_name)(int index);
  /// Whether one device can access the other's memory directly (NVLink, PCIe).
  bool (*can_access_peer)(int index, int peer);
  c10::intrusive_ptr<c10d::Backend> (*make_nccl_backend)(const NcclRequest& request);
  /// For a rank of `parent` that is not a member of the group split from it.
  void (*sit_out_split)(const c10::intrusive_ptr<c10d::Backend>& parent, int device_index);
  /// "2.28.9".
  std::string (*nccl_version)();
  /// c10d's flight recorder of NCCL's operations, as JSON.
  std::string (*nccl_flight_record)();
  void (*begin_range)(const char* name);
  void (*end_range)();
  GraphPool (*make_graph_pool)();
  std::unique_ptr<CudaGraph> (*make_graph)(const GraphPool& pool);
  /// Whether this thread's current stream is being recorded.
  bool (*is_recording)();
  void (*set_sync_debug_mode)(SyncDebugMode mode);
  DeviceFacts (*device_facts)(int index);
  /// Loads machine code for the rest of the process, and the kernel `symbol` of it into the device's memory.
  /// Not while a stream is recorded.
  void* (*load_kernel)(const std::string& cubin, const std::string& symbol, int index);
  /// On the current stream of the device. `arguments`: a pointer to each.
  void (*launch_kernel)(void* kernel, int index, const Grid& grid, void** arguments);
  SyncDebugMode (*sync_debug_mode)();
};

constexpr int kCudaPluginVersion = 10;
constexpr const char* kCudaPluginEntry = "lockstep_cuda_plugin";

/// Lockstep's CUDA library. Loaded at the start of the program if a device may be used, otherwise on the
/// first call (see CudaLoading); it is in the same folder as liblockstep.so. Throws UsageError if it cannot
/// be loaded, or if LibTorch has already determined that this process has no CUDA. Any thread.
const CudaPlugin& cuda_plugin();

/// The library if it is already loaded, otherwise null. Any thread.
const CudaPlugin* loaded_cuda_plugin() noexcept;

}  // namespace lockstep::comm
