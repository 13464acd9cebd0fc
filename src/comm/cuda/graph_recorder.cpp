#include "comm/cuda/graph_recorder.hpp"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <atomic>

namespace lockstep::comm {
namespace {

class CudaRecorder final : public GraphRecorder {
 public:
  GraphPool make_pool() override { return cuda_plugin().make_graph_pool(); }
  std::unique_ptr<CudaGraph> make_graph(const GraphPool& pool) override {
    return cuda_plugin().make_graph(pool);
  }
  bool is_recording() override { return cuda_plugin().is_recording(); }
  bool can_record_here(const at::Device& device) override {
    const c10::impl::VirtualGuardImpl streams(device.type());
    return streams.getStream(device) != streams.getDefaultStream(device);
  }
  void empty_cache() override {
    const Waiting may_wait(at::kCUDA);
    at::getDeviceAllocator(at::kCUDA)->emptyCache();
  }
};

std::atomic<GraphRecorder*> replacement{nullptr};

thread_local int recordable_works = 0;

}  // namespace

RecordableWork::RecordableWork() noexcept { ++recordable_works; }
RecordableWork::~RecordableWork() { --recordable_works; }
bool RecordableWork::is_here() noexcept { return recordable_works > 0; }

GraphRecorder::Waiting::Waiting(const at::Device& device) : is_cuda_(device.is_cuda()) {
  if (!is_cuda_) return;
  before_ = cuda_plugin().sync_debug_mode();
  cuda_plugin().set_sync_debug_mode(SyncDebugMode::off);
}

GraphRecorder::Waiting::~Waiting() {
  if (is_cuda_) cuda_plugin().set_sync_debug_mode(before_);
}

GraphRecorder* GraphRecorder::of(const at::Device& device) noexcept {
  if (GraphRecorder* const other = replacement) return other;
  static CudaRecorder cuda;
  return device.is_cuda() && loaded_cuda_plugin() != nullptr ? &cuda : nullptr;
}

std::shared_ptr<void> GraphRecorder::replace(GraphRecorder& recorder) {
  replacement = &recorder;
  return std::shared_ptr<void>(nullptr, [](std::nullptr_t) { replacement = nullptr; });
}

}  // namespace lockstep::comm
