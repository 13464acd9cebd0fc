#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "comm/cuda/graph_recorder.hpp"

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

  /// The recorded kernels are right as long as `holds` returns true.
  void valid_while(std::function<bool()> holds) { conditions_.push_back(std::move(holds)); }
  /// Whether the next replay would do what the recorded code would. To be asked before run().
  bool is_valid() const {
    return std::all_of(conditions_.begin(), conditions_.end(), [](const auto& holds) { return holds(); });
  }

  /// A float32 scalar on the device that recorded kernels read; each replay is preceded by a write of what
  /// `value` returns then.
  at::Tensor number(std::function<double()> value);

  void run() const {
    for (const auto& action : actions_) action();
  }

  /// Those of the graph for which this thread's current stream on `device` is being recorded, which may be in
  /// another thread than record(); null if it is not recorded. Throws UsageError if it is recorded for another
  /// graph.
  static GraphReplays* recorded(const at::Device& device);
  /// Of any device; null, too, if the stream is recorded for another graph.
  static GraphReplays* current() noexcept;

 private:
  /// Made before the recording: tensors made during it share their memory with the graph's temporary ones.
  at::Tensor numbers_;
  std::int64_t used_ = 0;
  std::vector<std::function<void()>> actions_;
  std::vector<std::function<bool()>> conditions_;
};

}  // namespace lockstep::comm
