// The CUDA library: the only part of Lockstep that links CUDA and NCCL.

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <torch/csrc/distributed/c10d/NCCLUtils.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "comm/cuda/nccl_config.hpp"
#include "comm/cuda/plugin.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::comm {
namespace {

int device_count() { return static_cast<int>(c10::cuda::device_count()); }

std::string device_problem() {
  try {
    c10::cuda::device_count_ensure_non_zero();
    return "";
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
}

void set_device(int index) { c10::cuda::set_device(static_cast<c10::DeviceIndex>(index)); }

void synchronize(int index) {
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(index));
  c10::cuda::device_synchronize();
}

std::string device_uuid(int index) {
  const auto* properties = at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(index));
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text = "GPU-";
  for (const char signed_byte : properties->uuid.bytes) {
    const auto byte = static_cast<unsigned char>(signed_byte);
    text += {kDigits[byte / 16], kDigits[byte % 16]};
  }
  return text;
}

std::string device_name(int index) {
  return at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(index))->name;
}

bool can_access_peer(int index, int peer) {
  return at::cuda::canDeviceAccessPeer(static_cast<c10::DeviceIndex>(index),
                                       static_cast<c10::DeviceIndex>(peer));
}

c10d::ProcessGroupNCCL& nccl(const c10::intrusive_ptr<c10d::Backend>& backend) {
  return dynamic_cast<c10d::ProcessGroupNCCL&>(*backend);
}

constexpr const char* kDescription = "lockstep";

void apply(const NcclConfig& given, ncclConfig_t& config) {
  const std::map<std::string, int*> places{{"minCTAs", &config.minCTAs},
                                           {"maxCTAs", &config.maxCTAs},
                                           {"cgaClusterSize", &config.cgaClusterSize},
                                           {"CTAPolicy", &config.CTAPolicy},
                                           {"nvlsCTAs", &config.nvlsCTAs},
                                           {"nChannelsPerNetPeer", &config.nChannelsPerNetPeer},
                                           {"nvlinkCentricSched", &config.nvlinkCentricSched},
                                           {"collnetEnable", &config.collnetEnable},
                                           {"splitShare", &config.splitShare},
                                           {"trafficClass", &config.trafficClass}};
  for (const auto& [name, number] : given.numbers) *places.at(name) = number;
  if (given.net_name.empty()) return;
  // NCCL reads it when a communicator is made, also one that c10d makes later.
  static std::set<std::string> names;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  config.netName = names.insert(given.net_name).first->c_str();
}

/// Other options keep the defaults of NCCL and c10d, whose variables (NCCL_*, TORCH_NCCL_*) act as in
/// PyTorch.
c10::intrusive_ptr<c10d::ProcessGroupNCCL::Options> options_of(const NcclRequest& request) {
  auto options = c10d::ProcessGroupNCCL::Options::create(request.high_priority_streams);
  options->timeout = request.timeout;
  apply(NcclConfig::from_environment(), options->config);
  options->group_name = request.name;
  options->group_desc = kDescription;
  options->global_ranks_in_group.assign(request.ranks.begin(), request.ranks.end());
  if (request.parent) {
    options->split_from =
        c10::intrusive_ptr<c10d::ProcessGroupNCCL>::unsafe_reclaim_from_nonowning(&nccl(request.parent));
    options->split_color = request.color;
  }
  return options;
}

/// The guard is needed because the calling thread may not have used a device yet and would use the first one.
c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const NcclRequest& request) {
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(request.device_index));
  auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(request.store, request.rank, request.size,
                                                             options_of(request));
  // NCCL reads them when the communicator is created.
  backend->setGroupUid(request.name);
  backend->setGroupDesc(kDescription);
  // Connects now instead of in the first collective, so that a failure is reported here.
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(request.device_index));
  backend->setBoundDeviceId(device);
  backend->eagerConnectSingleDevice(device);
  return backend;
}

void sit_out_split(const c10::intrusive_ptr<c10d::Backend>& parent, int device_index) {
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device_index));
  nccl(parent).performNocolorSplit(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device_index)));
}

std::string nccl_version() { return c10d::getNcclVersion(); }

std::string nccl_flight_record() {
  return c10d::dump_nccl_trace_json(/*includeCollectives=*/true, /*onlyActive=*/false);
}

void begin_range(const char* name) { nvtxRangePushA(name); }
void end_range() { nvtxRangePop(); }

/// Whether the memory is the host's, of any kind.
bool is_host_memory(const void* pointer) {
  cudaPointerAttributes attributes{};
  if (pointer == nullptr || cudaPointerGetAttributes(&attributes, pointer) != cudaSuccess) {
    (void)cudaGetLastError();
    return false;
  }
  return attributes.type == cudaMemoryTypeHost || attributes.type == cudaMemoryTypeUnregistered;
}

/// at::cuda::CUDAGraph, with what it leaves undone after a recording that failed, and a look at its copies.
class TorchGraph final : public CudaGraph, private at::cuda::CUDAGraph {
 public:
  explicit TorchGraph(const GraphPool& pool) : at::cuda::CUDAGraph(/*keep_graph=*/true), pool_(pool) {}

  /// Other threads, such as those of loaders and NCCL's watchdog, go on meanwhile.
  void begin() override {
    try {
      capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
    } catch (...) {
      recover();
      throw;
    }
  }

  void end() override {
    try {
      capture_end();
    } catch (...) {
      recover();
      throw;
    }
    refuse_host_copies();
    instantiate();
    // It is not looked at any more.
    C10_CUDA_CHECK_WARN(cudaGraphDestroy(graph_));
    has_graph_ = false;
  }

  void replay() override { at::cuda::CUDAGraph::replay(); }

 private:
  /// capture_end() has stopped half-way: the allocator would serve the pool for ever, and not reuse memory
  /// that another stream has used; generators would refuse to draw.
  void recover() noexcept {
    (void)cudaGetLastError();
    const auto succeeds = [](const auto& action) {
      try {
        action();
        return true;
      } catch (const std::exception&) {
        return false;
      }
    };
    // Only what had begun is released: a pool is counted once for each graph.
    auto& host = *at::getHostAllocator(at::kCUDA);
    if (succeeds([&] { c10::cuda::CUDACachingAllocator::endAllocateToPool(capture_dev_, mempool_id_); }))
      succeeds([&] { c10::cuda::CUDACachingAllocator::releasePool(capture_dev_, mempool_id_); });
    if (succeeds([&] { host.end_allocate_to_pool(mempool_id_); }))
      succeeds([&] { host.release_pool(mempool_id_); });
    for (auto& [state, increment] : captured_generator_states_) {
      state->capturing_ = false;
      state->offset_intragraph_ = 0;
    }
  }

  /// A copy from memory of the host that did not wait was recorded with its address alone.
  void refuse_host_copies() {
    std::size_t count = 0;
    C10_CUDA_CHECK(cudaGraphGetNodes(graph_, nullptr, &count));
    std::vector<cudaGraphNode_t> nodes(count);
    C10_CUDA_CHECK(cudaGraphGetNodes(graph_, nodes.data(), &count));
    for (const auto node : nodes) {
      cudaGraphNodeType type{};
      C10_CUDA_CHECK(cudaGraphNodeGetType(node, &type));
      if (type != cudaGraphNodeTypeMemcpy) continue;
      cudaMemcpy3DParms copy{};
      if (cudaGraphMemcpyNodeGetParams(node, &copy) != cudaSuccess) {
        (void)cudaGetLastError();
        continue;
      }
      TORCH_CHECK(!is_host_memory(copy.srcPtr.ptr),
                  "it copies from memory of the host to the device, where a replay would find other data");
      TORCH_CHECK(!is_host_memory(copy.dstPtr.ptr), "it copies from the device to memory of the host");
    }
  }

  GraphPool pool_;
};

GraphPool make_graph_pool() { return at::cuda::graph_pool_handle(); }

std::unique_ptr<CudaGraph> make_graph(const GraphPool& pool) { return std::make_unique<TorchGraph>(pool); }

bool is_recording() {
  return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
}

void set_sync_debug_mode(SyncDebugMode mode) {
  using Mode = c10::cuda::SyncDebugMode;
  c10::cuda::warning_state().set_sync_debug_mode(mode == SyncDebugMode::off    ? Mode::L_DISABLED
                                                 : mode == SyncDebugMode::warn ? Mode::L_WARN
                                                                               : Mode::L_ERROR);
}

/// Of a device with features that no later one has, without these: "sm_90".
DeviceFacts device_facts(int index) {
  const auto* properties = at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(index));
  return {.architecture = "sm_" + std::to_string(properties->major) + std::to_string(properties->minor),
          .multiprocessors = properties->multiProcessorCount};
}

#if CUDART_VERSION >= 12080
void* load_kernel(const std::string& cubin, const std::string& symbol, int index) {
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(index));
  cudaLibrary_t library = nullptr;
  C10_CUDA_CHECK(cudaLibraryLoadData(&library, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  cudaKernel_t kernel = nullptr;
  C10_CUDA_CHECK(cudaLibraryGetKernel(&kernel, library, symbol.c_str()));
  // Loads it now instead of at its first launch, which may be recorded.
  cudaFuncAttributes attributes{};
  C10_CUDA_CHECK(cudaFuncGetAttributes(&attributes, kernel));
  return kernel;
}
#else
void* load_kernel(const std::string& /*cubin*/, const std::string& symbol, int /*index*/) {
  throw UsageError("the kernel " + symbol + " needs Lockstep's CUDA library of CUDA 12.8 or later");
}
#endif

void launch_kernel(void* kernel, int index, const Grid& grid, void** arguments) {
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(index));
  const dim3 blocks(static_cast<unsigned>(grid.blocks), static_cast<unsigned>(grid.blocks_y));
  const dim3 threads(static_cast<unsigned>(grid.threads));
  C10_CUDA_CHECK(cudaLaunchKernel(kernel, blocks, threads, arguments,
                                  static_cast<std::size_t>(grid.shared_bytes),
                                  c10::cuda::getCurrentCUDAStream()));
}

SyncDebugMode sync_debug_mode() {
  using Mode = c10::cuda::SyncDebugMode;
  const Mode mode = c10::cuda::warning_state().get_sync_debug_mode();
  if (mode == Mode::L_DISABLED) return SyncDebugMode::off;
  return mode == Mode::L_WARN ? SyncDebugMode::warn : SyncDebugMode::error;
}

}  // namespace
}  // namespace lockstep::comm

extern "C" const lockstep::comm::CudaPlugin* lockstep_cuda_plugin() {
  using namespace lockstep::comm;
  static const CudaPlugin plugin{.version = kCudaPluginVersion,
                                 .device_count = &device_count,
                                 .device_problem = &device_problem,
                                 .set_device = &set_device,
                                 .synchronize = &synchronize,
                                 .device_uuid = &device_uuid,
                                 .device_name = &device_name,
                                 .can_access_peer = &can_access_peer,
                                 .make_nccl_backend = &make_nccl_backend,
                                 .sit_out_split = &sit_out_split,
                                 .nccl_version = &nccl_version,
                                 .nccl_flight_record = &nccl_flight_record,
                                 .begin_range = &begin_range,
                                 .end_range = &end_range,
                                 .make_graph_pool = &make_graph_pool,
                                 .make_graph = &make_graph,
                                 .is_recording = &is_recording,
                                 .set_sync_debug_mode = &set_sync_debug_mode,
                                 .device_facts = &device_facts,
                                 .load_kernel = &load_kernel,
                                 .launch_kernel = &launch_kernel,
                                 .sync_debug_mode = &sync_debug_mode};
  return &plugin;
}
