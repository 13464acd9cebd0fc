#pragma once

#include <memory>
#include <optional>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <vector>

#include "comm_hook_runner.hpp"
#include "lockstep/comm/trace.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "reducer_setup.hpp"
#include "straggler_detector.hpp"

namespace lockstep {

/// While a join() runs.
struct JoinState {
  JoinOptions options;
  /// Whose buffers count: the last rank that still has batches.
  int authority = 0;
};

struct DdpState {
  DdpState(std::vector<NamedTensor> trained_parameters, const ProcessGroup& ddp_group,
           const DistributedDataParallelOptions& ddp_options);

  void install_reducer(BucketLayout buckets);
  /// The pipeline, which from now on stands between the reducer and the other ranks.
  parallel::CommHookRunner& need_pipeline();
  void rebuild_buckets();
  /// Copies values of `root` to the other ranks. *Collective*.
  void broadcast(const std::vector<NamedTensor>& named, int root);

  /// Of the program.
  bool has_hook() const { return pipeline != nullptr && &pipeline->hook() != mean.get(); }

  /// Of a static graph the first backward counts, whatever no_sync() says: c10d learns the graph from it, and
  /// fails where it was not told. Gradients that are averaged once more are the same.
  bool synchronises() const {
    const bool learns = options.static_graph && !delayed_reduce_is_queued;
    return reducer != nullptr && (synchronise || learns) && at::GradMode::is_enabled();
  }

  std::vector<NamedTensor> parameters;
  ProcessGroup group;
  DistributedDataParallelOptions options;
  std::shared_ptr<parallel::TimedReducer> reducer;  // Null in a group of one.
  // The reducer calls it without asking whether there is one, when the set of unused parameters changes.
  std::shared_ptr<c10d::Logger> logger;
  std::shared_ptr<parallel::CommHookRunner> pipeline;  // Null where the reducer averages by itself.
  std::shared_ptr<parallel::PlainMean> mean;           // What the pipeline does without a hook.
  parallel::StragglerDetector watch;
  std::optional<trace::Range> forward;  // While one runs.
  std::optional<JoinState> join;
  bool applies_in_backward = false;
  bool has_buffers = false;
  bool synchronise = true;      // Off inside no_sync().
  bool buffers_are_due = true;  // The last forward was synchronised, so buffers may have drifted since.
  bool delayed_reduce_is_queued = false;  // Static graph: the first backward reduces at its end.
};

/// "rank 1 of 2: DistributedDataParallel".
std::string describe(const ProcessGroup& group);

}  // namespace lockstep
