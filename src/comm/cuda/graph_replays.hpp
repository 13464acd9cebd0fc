#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "comm/cuda/plugin.hpp"

namespace lockstep::comm {

/// What the host does before each replay of a CUDA graph: a replay launches the recorded kernels, but runs
/// none of the code that launched them.
class GraphReplays {
 public:
  explicit GraphReplays(const at::Device& device);
  GraphReplays(const GraphReplays&) = delete;
  GraphReplays& operator=(const GraphReplays&) = delete;

  /// Records into `graph` what `launch` gives the current stream. Throws what `launch` and CUDA throw, and
  /// UsageError if another thread of the process is recording.
  void record(CudaGraph& graph, const std::function<void()>& launch);

  void before_each(std::function<void()> action) { actions_.push_back(std::move(action)); }

  /// A float32 scalar on the device that recorded kernels read; each replay is preceded by a write of what
  /// `value` returns then.
  at::Tensor number(std::function<double()> value);

  void run() const {
    for (const auto& action : actions_) action();
  }

  /// Those of the graph for which this thread's current stream is being recorded, which may be in another
  /// thread than record(); null if it is not recorded. Throws UsageError if it is recorded for another graph.
  /// Only where a CUDA device is in use.
  static GraphReplays* recorded();
  /// The same, but null if the stream is recorded for another graph.
  static GraphReplays* current() noexcept;

 private:
  /// Made before the recording: tensors made during it share their memory with the graph's temporary ones.
  at::Tensor numbers_;
  std::int64_t used_ = 0;
  std::vector<std::function<void()>> actions_;
};

}  // namespace lockstep::comm
