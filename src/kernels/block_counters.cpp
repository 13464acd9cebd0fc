#include "kernels/block_counters.hpp"

#include <ATen/ops/zeros.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <map>
#include <mutex>
#include <tuple>

#include "comm/cuda/graph_recorder.hpp"

namespace lockstep::kernels {
namespace {

/// Of the kernels that are not recorded, and of all: a recorded step of a model of 24 layers takes some
/// 5,000.
constexpr std::int64_t kOfStream = std::int64_t{1} << 12, kAll = std::int64_t{1} << 17;

struct StreamCounters {
  at::Tensor memory;
  /// The first ones that no recorded kernel has.
  std::int64_t next = kOfStream;
};

struct AllCounters {
  std::mutex mutex;
  std::map<std::tuple<c10::DeviceType, c10::DeviceIndex, c10::StreamId>, StreamCounters> of_streams;
};

AllCounters& all_counters() {
  // Not destroyed: CUDA may end before it.
  static auto& counters = *new AllCounters;
  return counters;
}

}  // namespace

unsigned* find_block_counters(const c10::Device& device, std::int64_t count) {
  comm::GraphRecorder* const recorder = comm::GraphRecorder::of(device);
  const bool is_recorded = recorder != nullptr && recorder->is_recording();
  const c10::StreamId stream =
      device.is_cuda() ? c10::impl::VirtualGuardImpl(device.type()).getStream(device).id() : 0;
  AllCounters& all = all_counters();
  const std::lock_guard lock(all.mutex);
  StreamCounters& own = all.of_streams[{device.type(), device.index(), stream}];
  if (!own.memory.defined()) {
    // Memory of a graph would be given to others.
    if (is_recorded) return nullptr;
    own.memory = at::zeros({kAll}, at::TensorOptions(at::kInt).device(device));
  }
  auto* const counters = reinterpret_cast<unsigned*>(own.memory.mutable_data_ptr<int>());
  if (!is_recorded) return count <= kOfStream ? counters : nullptr;
  if (own.next + count > kAll) return nullptr;
  own.next += count;
  return counters + (own.next - count);
}

}  // namespace lockstep::kernels
