#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/cuda/graph_recorder.hpp"

namespace lockstep::testing {

/// Stands for CUDA graphs on a CPU, while it exists. A recording notes each operation with its tensors, and
/// in the end the memory and the random numbers are as before it, because a recording runs nothing. A replay
/// calls the same operations again and puts their results into the noted tensors; no other code of the
/// recorded step runs. As on a device, a recording fails where the host reads a value.
class GraphTape final : public comm::GraphRecorder {
 public:
  GraphTape();
  ~GraphTape() override;

  comm::GraphPool make_pool() override { return {0, 1}; }
  std::unique_ptr<comm::CudaGraph> make_graph(const comm::GraphPool& pool) override;
  bool is_recording() override;
  bool can_record_here(const at::Device& /*device*/) override { return on_side_stream; }
  void empty_cache() override {}

  bool on_side_stream = true;
  /// The next recording fails with its operation of this number; -1: none does.
  int fails_at = -1;
  /// Replays leave out this operation.
  std::string leaves_out;
  int recordings = 0, replays = 0;

 private:
  std::shared_ptr<void> replaced_;
};

}  // namespace lockstep::testing
