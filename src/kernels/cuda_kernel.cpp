#include "kernels/cuda_kernel.hpp"

#include <ATen/record_function.h>
#include <fmt/core.h>

#include <atomic>
#include <exception>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>

#include "core/first_line.hpp"
#include "kernels/packaged_cubins.hpp"
#include "kernels/remembered.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::kernels {
namespace {

class LoadedKernel final : public CudaKernel {
 public:
  LoadedKernel(const std::string& instance, void* kernel, int device)
      : CudaKernel(instance), kernel_(kernel), device_(device) {}

 private:
  void launch_with(const Grid& grid, void** arguments) const override {
    comm::cuda_plugin().launch_kernel(kernel_, device_, grid, arguments);
  }

  void* kernel_;
  int device_;
};

class Gpu final : public KernelDevice {
 public:
  const CudaKernel* find(const std::string& source, const std::string& instance,
                         const at::Device& device) override {
    const std::lock_guard lock(mutex_);
    const auto key = std::pair(source + ": " + instance, static_cast<int>(device.index()));
    const auto found = kernels_.find(key);
    if (found != kernels_.end()) return found->second.get();
    const comm::CudaPlugin& plugin = comm::cuda_plugin();
    if (plugin.is_recording()) return nullptr;
    auto& kernel = kernels_[key];
    try {
      void* const loaded = load_or_compile({.source = source,
                                            .instance = instance,
                                            .architecture = plugin.device_facts(key.second).architecture},
                                           packaged_cubins(), kept_cubins(), [&](const Cubin& cubin) {
                                             return plugin.load_kernel(cubin.bytes, cubin.symbol, key.second);
                                           });
      kernel = std::make_unique<LoadedKernel>(instance, loaded, key.second);
    } catch (const std::exception& error) {
      warn(instance, error.what());
    }
    return kernel.get();
  }

  int multiprocessors(const at::Device& device) override {
    return comm::cuda_plugin().device_facts(device.index()).multiprocessors;
  }

 private:
  static const PackagedCubins& packaged_cubins() {
    static const PackagedCubins packaged(packaged_cubin_folder());
    return packaged;
  }
  static const CubinCache& kept_cubins() {
    static const CubinCache cache(cubin_folder());
    return cache;
  }

  void warn(const std::string& instance, const std::string& what) {
    if (has_warned_) return;
    has_warned_ = true;
    std::cerr << fmt::format(
                     "lockstep: warning: the fused kernel {} cannot be used: {}. LibTorch's slower "
                     "operations are used instead; fused_kernels=off selects them without this warning\n",
                     instance, first_line_of(what))
              << std::flush;
  }

  std::mutex mutex_;
  std::map<std::pair<std::string, int>, std::unique_ptr<CudaKernel>> kernels_;
  bool has_warned_ = false;
};

std::atomic<KernelDevice*> replacement{nullptr};

}  // namespace

KernelDevice& kernel_device() {
  // Not destroyed: CUDA may end before it.
  static Gpu& gpu = *new Gpu;
  KernelDevice* of_tests = replacement;
  return of_tests != nullptr ? *of_tests : gpu;
}

void CudaKernel::record_and_launch(const Grid& grid, void** arguments) const {
  RECORD_FUNCTION(name_, c10::ArrayRef<const c10::IValue>{});
  launch_with(grid, arguments);
}

const CudaKernel* find_kernel(const std::string& source, const std::string& instance,
                              const at::Device& device) {
  return kernel_device().find(source, instance, device);
}

int multiprocessors(const at::Device& device) { return kernel_device().multiprocessors(device); }

std::string cuda_type(at::ScalarType dtype) {
  switch (dtype) {
    case at::kBFloat16:
      return "bf16";
    case at::kHalf:
      return "fp16";
    case at::kFloat:
      return "float";
    default:
      throw UsageError(fmt::format("no kernel is for tensors of {}", c10::toString(dtype)));
  }
}

void set_kernel_device(KernelDevice* device) {
  replacement = device;
  forget_answers();
}
KernelDevice* kernel_device_of_tests() noexcept { return replacement; }

}  // namespace lockstep::kernels
