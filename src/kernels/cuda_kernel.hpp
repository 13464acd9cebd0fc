#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <type_traits>

#include "comm/cuda/plugin.hpp"

namespace lockstep::kernels {

using comm::Grid;

/// A kernel of kernels/cuda, compiled for a device.
class CudaKernel {
 public:
  /// `instance`: "cross_entropy<bf16>".
  explicit CudaKernel(const std::string& instance) : name_("lockstep::" + instance) {}
  CudaKernel(const CudaKernel&) = delete;
  CudaKernel& operator=(const CudaKernel&) = delete;
  virtual ~CudaKernel() = default;

  /// On the current stream of the device that it was found for. The arguments have the sizes of the kernel's
  /// parameters: pointers, std::int64_t for long long, int, float, and structs of these. Throws what CUDA
  /// reports. May be recorded in a graph. Any thread.
  template <class... Arguments>
  void launch(const Grid& grid, const Arguments&... arguments) const {
    static_assert((std::is_trivially_copyable_v<Arguments> && ...), "arguments are copied as bytes");
    const void* pointers[] = {static_cast<const void*>(&arguments)...};
    record_and_launch(grid, const_cast<void**>(pointers));
  }

  /// "lockstep::cross_entropy<bf16>": of profiles.
  const std::string& name() const noexcept { return name_; }

 protected:
  virtual void launch_with(const Grid& grid, void** arguments) const = 0;

 private:
  void record_and_launch(const Grid& grid, void** arguments) const;

  std::string name_;
};

/// What compiles kernels and launches them: a GPU, or the emulator of the tests.
class KernelDevice {
 public:
  virtual ~KernelDevice() = default;
  /// Null if it has no such kernel.
  virtual const CudaKernel* find(const std::string& source, const std::string& instance,
                                 const at::Device& device) = 0;
  /// Whether operations must prove themselves: see is_proven().
  virtual bool needs_proof() const { return true; }
  /// How many blocks run at a time, if each has one of a GPU's multiprocessors.
  virtual int multiprocessors(const at::Device& device) = 0;

  /// Of is_proven().
  struct Proofs {
    std::mutex mutex;
    std::map<std::string, bool> verdicts;
  };
  Proofs proofs;
};

/// The GPU, or what tests have set.
KernelDevice& kernel_device();

/// An instance of a template of kernels/cuda/`source`.cu, such as "cross_entropy<bf16>", for a device.
/// Compiled and loaded by the first call, or read from the cache. Null if that fails, with one warning, and
/// if it is not loaded while the current stream is recorded: then the operation is composed of ATen's. So the
/// kernels that a recorded step uses are loaded by the steps before. Any thread.
const CudaKernel* find_kernel(const std::string& source, const std::string& instance,
                              const at::Device& device);

/// Of the device, or of the emulator.
int multiprocessors(const at::Device& device);

/// A type of prelude.cu: "bf16", "fp16", "float". Throws UsageError for others.
std::string cuda_type(at::ScalarType dtype);

/// Replaces the GPU, also for tensors of the CPU, until it is set to null. For tests.
void set_kernel_device(KernelDevice* device);
KernelDevice* kernel_device_of_tests() noexcept;

}  // namespace lockstep::kernels
