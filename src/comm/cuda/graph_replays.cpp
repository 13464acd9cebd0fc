#include "comm/cuda/graph_replays.hpp"

#include <ATen/ops/empty.h>
#include <fmt/core.h>

#include <atomic>

#include "lockstep/core/error.hpp"

namespace lockstep::comm {
namespace {

/// 2 for each group of parameters, and more if their step counts differ.
constexpr std::int64_t kNumbers = 4096;

std::atomic<GraphReplays*> recording{nullptr};

}  // namespace

GraphReplays::GraphReplays(const at::Device& device)
    : numbers_(at::empty({kNumbers}, at::TensorOptions(device).dtype(at::kFloat))) {}

at::Tensor GraphReplays::number(std::function<double()> value) {
  if (used_ == kNumbers) {
    throw UsageError(fmt::format(
        "a CUDA graph has at most {} learning rates and step counts: use fewer parameter groups", kNumbers));
  }
  at::Tensor number = numbers_.select(0, used_++);
  before_each([number, value = std::move(value)] { number.fill_(value()); });
  return number;
}

void GraphReplays::record(CudaGraph& graph, const std::function<void()>& launch) {
  GraphReplays* none = nullptr;
  if (!recording.compare_exchange_strong(none, this))
    throw UsageError("another thread records a CUDA graph: a process can record one at a time");
  struct End {
    ~End() { recording = nullptr; }
  } const end;
  graph.begin();
  try {
    launch();
  } catch (...) {
    // A failed recording has to be ended as well, and fails to.
    try {
      graph.end();
    } catch (const std::exception&) {
    }
    throw;
  }
  graph.end();
}

GraphReplays* GraphReplays::recorded(const at::Device& device) {
  GraphRecorder* const recorder = GraphRecorder::of(device);
  if (recorder == nullptr || !recorder->is_recording()) return nullptr;
  GraphReplays* replays = recording;
  if (replays == nullptr) {
    throw UsageError(
        "an optimizer steps while a CUDA graph is recorded: replays would repeat the number of this step and "
        "its learning rate. Record it with lockstep::GraphedStep");
  }
  return replays;
}

GraphReplays* GraphReplays::current() noexcept {
  GraphRecorder* const recorder = GraphRecorder::of(at::kCUDA);
  return recorder != nullptr && recorder->is_recording() ? recording.load() : nullptr;
}

}  // namespace lockstep::comm
