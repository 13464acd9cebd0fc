#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace lockstep::comm {

/// What an NCCL communicator is made of.
struct NcclRequest {
  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0;
  int size = 1;
  int device_index = 0;
  std::chrono::milliseconds timeout{0};
  /// The group's name, the same on all its ranks and no other group's, and its ranks as the world counts
  /// them: in NCCL's log and in dumps of c10d's flight recorder.
  std::string name = {};
  std::vector<int> ranks = {};
  bool high_priority_streams = false;
  /// A communicator that this one is split from (ncclCommSplit), in which all members of this one are and
  /// whose other ranks call sit_out_split(); null: one of its own. `color`: the same for all members.
  c10::intrusive_ptr<c10d::Backend> parent = {};
  int color = 0;
};

/// What the CUDA library gives to the core, as plain functions: the core links nothing of CUDA.
struct CudaPlugin {
  int version;
  int (*device_count)();
  /// Why there is no device that this process can use (no device, a driver that is too old); "" where there
  /// is one.
  std::string (*device_problem)();
  void (*set_device)(int index);
  void (*synchronize)(int index);
  /// What no other GPU has: "GPU-1c5e...".
  std::string (*device_uuid)(int index);
  /// What CUDA calls the model: "NVIDIA H200".
  std::string (*device_name)(int index);
  /// Whether one device reads and writes the other's memory directly (NVLink, PCIe).
  bool (*can_access_peer)(int index, int peer);
  c10::intrusive_ptr<c10d::Backend> (*make_nccl_backend)(const NcclRequest& request);
  /// For a rank of `parent` that is not in the group that others split from it.
  void (*sit_out_split)(const c10::intrusive_ptr<c10d::Backend>& parent, int device_index);
  /// "2.28.9".
  std::string (*nccl_version)();
  /// What c10d's flight recorder has of NCCL's operations, as JSON.
  std::string (*nccl_flight_record)();
  void (*begin_range)(const char* name);
  void (*end_range)();
};

constexpr int kCudaPluginVersion = 7;
constexpr const char* kCudaPluginEntry = "lockstep_cuda_plugin";

/// Lockstep's CUDA library. Loaded at the start of the program where a device may be used, else (CudaLoading)
/// on the first call; it lies beside liblockstep.so. Throws UsageError when it cannot be loaded, and when it
/// comes after LibTorch has settled that this process has no CUDA. Any thread.
const CudaPlugin& cuda_plugin();

/// The library where it has been loaded already, else null. Any thread.
const CudaPlugin* loaded_cuda_plugin() noexcept;

}  // namespace lockstep::comm
