#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace lockstep::comm {

/// What the CUDA library gives to the core, as plain functions: the core links nothing of CUDA.
struct CudaPlugin {
  int version;
  int (*device_count)();
  void (*set_device)(int index);
  void (*synchronize)(int index);
  c10::intrusive_ptr<c10d::Backend> (*make_nccl_backend)(const c10::intrusive_ptr<c10d::Store>& store,
                                                         int rank, int size, int device_index,
                                                         std::chrono::milliseconds timeout);
};

constexpr int kCudaPluginVersion = 1;
constexpr const char* kCudaPluginEntry = "lockstep_cuda_plugin";

/// Loads liblockstep_cuda.so (beside liblockstep.so) on the first call and keeps it.
/// Throws UsageError saying what is missing when it cannot be loaded. Any thread.
const CudaPlugin& cuda_plugin();

}  // namespace lockstep::comm
