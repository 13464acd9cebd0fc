// Loads the CUDA library early.
//
// LibTorch checks once per process whether CUDA is available, at the first manual_seed(), backward(),
// convolution or use of pinned memory, and keeps the result (at::detail::getCUDAHooks()). If libtorch_cuda is
// loaded later, devices can be counted and NCCL starts, but no tensor can be created on a device. The library
// is therefore loaded before main() if a device may be used, and loading it too late is an error.
#include <ATen/detail/CUDAHooksInterface.h>
#include <dlfcn.h>
#include <fmt/core.h>

#include <atomic>
#include <filesystem>
#include <string>

#include "comm/cuda/cuda_loading.hpp"
#include "comm/cuda/device_sharing.hpp"
#include "comm/cuda/plugin.hpp"
#include "core/cuda_driver.hpp"
#include "lockstep/comm/cuda.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace comm {
namespace {

constexpr const char* kLibrary = "liblockstep_cuda.so";
constexpr const char* kRemedy = "build with a CUDA LibTorch and -DLOCKSTEP_CUDA=ON on this machine";

/// Also read at program start, before the constructors of this library's other objects have run.
constinit std::atomic<const CudaPlugin*> loaded{nullptr};

/// In the same folder as this library.
std::filesystem::path library_path() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&library_path), &info) == 0 || info.dli_fname == nullptr)
    return kLibrary;
  return std::filesystem::path(info.dli_fname).parent_path() / kLibrary;
}

[[noreturn]] void unusable(const std::string& reason) {
  throw UsageError(
      fmt::format("Lockstep's CUDA library is not usable: {}; {}, or use the CPU", reason, kRemedy));
}

void check_in_time() {
  if (at::detail::getCUDAHooks().hasCUDART()) return;
  throw UsageError(
      "a CUDA device was requested too late: this process used LibTorch before Lockstep's CUDA library was "
      "loaded, and LibTorch has decided that CUDA is not available. The library is loaded at startup if "
      "NVIDIA's driver is present (/dev/nvidiactl or /dev/dxg) and CUDA_VISIBLE_DEVICES does not hide all "
      "devices. Let the program see a device, start it with LOCKSTEP_CUDA=on, or use the CPU");
}

const CudaPlugin* load() {
  // After an error c10d's watchdog waits four times as long for the dumps of other ranks: 10 s instead of 60.
  set_default_variable("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "2500");
  // NCCL would exchange the buffers of collectives that are recorded in a CUDA graph among the ranks of a
  // host, which do not all record at the same time.
  set_default_variable("NCCL_GRAPH_REGISTER", "0");
  const std::string path = library_path();
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) unusable(dlerror());
  using Entry = const CudaPlugin* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(library, kCudaPluginEntry));
  if (entry == nullptr) unusable(fmt::format("{} has no entry '{}'", path, kCudaPluginEntry));
  const CudaPlugin* plugin = entry();
  if (plugin->version != kCudaPluginVersion) {
    unusable(
        fmt::format("{} has interface version {}, expected {}", path, plugin->version, kCudaPluginVersion));
  }
  check_in_time();
  loaded = plugin;
  return plugin;
}

/// Evaluated once, so that the environment is not read while other threads may change it.
CudaLoading loading() {
  static const CudaLoading settled = cuda_loading(process_environment(), has_cuda_driver());
  return settled;
}

bool is_built() { return std::filesystem::exists(library_path()); }

/// A failure here is repeated, and thrown, when a device is requested.
[[gnu::constructor]] void load_at_start() {
  try {
    if (loading() == CudaLoading::at_start && is_built()) cuda_plugin();
  } catch (const std::exception&) {
  }
}

}  // namespace

const CudaPlugin& cuda_plugin() {
  static const CudaPlugin* const plugin = [] {
    if (loading() == CudaLoading::never) unusable("LOCKSTEP_CUDA is off");
    return load();
  }();
  return *plugin;
}

const CudaPlugin* loaded_cuda_plugin() noexcept { return loaded; }

}  // namespace comm

int cuda_device_count() {
  // Without a visible device the large CUDA libraries are not loaded.
  if (comm::loading() != comm::CudaLoading::at_start || !comm::is_built()) return 0;
  return comm::cuda_plugin().device_count();
}

std::string cuda_obstacle() {
  if (comm::loading() != comm::CudaLoading::at_start) return "";
  if (!comm::is_built()) {
    return fmt::format("there is no {}, which is Lockstep's CUDA library; {}", comm::library_path().string(),
                       comm::kRemedy);
  }
  return comm::cuda_plugin().device_problem();
}

std::string cuda_device_name(int index) { return comm::cuda_plugin().device_name(index); }

std::string cuda_peer_access() {
  const int count = cuda_device_count();
  return count < 2 ? "" : comm::peer_access_text(count, comm::cuda_plugin().can_access_peer);
}

void set_sync_debug_mode(SyncDebugMode mode) { comm::cuda_plugin().set_sync_debug_mode(mode); }

std::string nccl_version() { return cuda_device_count() == 0 ? "" : comm::cuda_plugin().nccl_version(); }

}  // namespace lockstep
