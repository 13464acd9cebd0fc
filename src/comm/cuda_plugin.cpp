#include "cuda_plugin.hpp"

#include <dlfcn.h>

#include <atomic>
#include <filesystem>
#include <string>

#include "lockstep/comm/cuda.hpp"
#include "lockstep/core/error.hpp"
#include "peer_access.hpp"

namespace lockstep {
namespace comm {
namespace {

constexpr const char* kLibrary = "liblockstep_cuda.so";
std::atomic<const CudaPlugin*> loaded{nullptr};

/// The folder of the library that this code is in.
std::filesystem::path own_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0 || info.dli_fname == nullptr) return {};
  return std::filesystem::path(info.dli_fname).parent_path();
}

[[noreturn]] void unavailable(const std::string& reason) {
  throw UsageError(std::string("a CUDA device was asked for, but Lockstep's CUDA library is not usable: ") +
                   reason +
                   ". Build with a CUDA LibTorch and -DLOCKSTEP_CUDA=ON on this machine, or ask for the CPU");
}

const CudaPlugin* load() {
  const std::string path = (own_folder() / kLibrary).string();
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) unavailable(dlerror());
  using Entry = const CudaPlugin* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(library, kCudaPluginEntry));
  if (entry == nullptr) unavailable(path + " has no entry '" + kCudaPluginEntry + "'");
  const CudaPlugin* plugin = entry();
  if (plugin->version != kCudaPluginVersion) {
    unavailable(path + " has interface version " + std::to_string(plugin->version) + ", expected " +
                std::to_string(kCudaPluginVersion));
  }
  return plugin;
}

}  // namespace

const CudaPlugin& cuda_plugin() {
  static const CudaPlugin* const plugin = [] {
    const CudaPlugin* const fresh = load();
    loaded = fresh;
    return fresh;
  }();
  return *plugin;
}

const CudaPlugin* loaded_cuda_plugin() noexcept { return loaded; }

}  // namespace comm

int cuda_device_count() {
  // Without the driver's device files there is nothing to count, and the heavy libraries stay unloaded.
  if (!std::filesystem::exists("/dev/nvidiactl") && !std::filesystem::exists("/dev/dxg")) return 0;
  if (!std::filesystem::exists(comm::own_folder() / comm::kLibrary)) return 0;
  return comm::cuda_plugin().device_count();
}

std::string cuda_peer_access() {
  const int count = cuda_device_count();
  return count < 2 ? "" : comm::peer_access_text(count, comm::cuda_plugin().can_access_peer);
}

std::string nccl_version() { return cuda_device_count() == 0 ? "" : comm::cuda_plugin().nccl_version(); }

}  // namespace lockstep
