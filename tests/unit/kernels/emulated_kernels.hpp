#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "kernels/cuda_kernel.hpp"

namespace lockstep::testing {

class BlockEmulator;

/// The kernels of kernels/cuda on the host: while it exists, fused operations run on tensors of the CPU, by
/// their own kernels, on the emulator of block_emulator.hpp.
class EmulatedKernels final : public kernels::KernelDevice {
 public:
  explicit EmulatedKernels(unsigned seed = 1);
  ~EmulatedKernels() override;

  const kernels::CudaKernel* find(const std::string& source, const std::string& instance,
                                  const at::Device& device) override;
  int multiprocessors(const at::Device& device) override;
  bool needs_proof() const override { return needs_proof_; }

  /// Operations prove themselves, as on a GPU.
  void require_proof() { needs_proof_ = true; }
  /// From now on this kernel computes nothing.
  void break_kernel(const std::string& instance) { broken_.insert(instance); }

  /// How often each was launched.
  const std::map<std::string, int>& launches() const { return launches_; }

 private:
  class Kernel;
  std::map<std::string, std::unique_ptr<kernels::CudaKernel>> kernels_;
  std::map<std::string, int> launches_;
  std::unique_ptr<BlockEmulator> emulator_;
  bool needs_proof_ = false;
  std::set<std::string> broken_;
};

/// An instance that the library may launch.
struct KernelInstance {
  std::string source;
  std::string name;
};

/// All that are emulated, which are all that the operations use.
std::vector<KernelInstance> kernel_instances();

}  // namespace lockstep::testing
