// The CUDA library: everything of Lockstep that links CUDA and NCCL.

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "../cuda_plugin.hpp"

namespace lockstep::comm {
namespace {

int device_count() { return static_cast<int>(c10::cuda::device_count()); }

void set_device(int index) { c10::cuda::set_device(static_cast<c10::DeviceIndex>(index)); }

void synchronize(int index) {
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(index));
  c10::cuda::device_synchronize();
}

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                                    int size, int device_index,
                                                    std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
  // Bound to its device, the communicator is made now, and a failure shows here and not in the first
  // collective.
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(device_index));
  backend->setBoundDeviceId(device);
  backend->eagerConnectSingleDevice(device);
  return backend;
}

}  // namespace
}  // namespace lockstep::comm

extern "C" const lockstep::comm::CudaPlugin* lockstep_cuda_plugin() {
  using namespace lockstep::comm;
  static const CudaPlugin plugin{.version = kCudaPluginVersion,
                                 .device_count = &device_count,
                                 .set_device = &set_device,
                                 .synchronize = &synchronize,
                                 .make_nccl_backend = &make_nccl_backend};
  return &plugin;
}
