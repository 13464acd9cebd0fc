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
  /// The rank whose buffers are used: the last one that still has batches.
  int authority = 0;
};

struct DdpState {
  DdpState(std::vector<NamedTensor> trained_parameters, const ProcessGroup& ddp_group,
           const DistributedDataParallelOptions& ddp_options);

  void install_reducer(BucketLayout buckets);
  /// Creates the pipeline if needed; from then on the reducer communicates through it.
  parallel::CommHookRunner& need_pipeline();
  void rebuild_buckets();
  /// Call it before the buckets of a step are sent.
  void backward_begins();
  /// Copies values of `root` to the other ranks. *Collective*.
  void broadcast(const std::vector<NamedTensor>& named, int root);

  /// The first backward of a static graph is synchronized whatever no_sync() says: c10d learns the graph from
  /// it, and fails without it. Averaging gradients once more does not change them.
  bool synchronises() const {
    return reducer != nullptr && (synchronise || learns_graph()) && at::GradMode::is_enabled();
  }
  bool learns_graph() const { return options.static_graph && !delayed_reduce_is_queued; }

  std::vector<NamedTensor> parameters;
  ProcessGroup group;
  DistributedDataParallelOptions options;
  std::shared_ptr<parallel::TimedReducer> reducer;  // Null in a group of one.
  // The reducer uses it without a null check when the set of unused parameters changes.
  std::shared_ptr<c10d::Logger> logger;
  std::shared_ptr<parallel::CommHookRunner> pipeline;  // Null if the reducer averages by itself.
  std::shared_ptr<parallel::PlainMean> mean;           // The pipeline's default hook.
  parallel::StragglerDetector watch;
  std::optional<trace::Range> forward;  // Set during a forward.
  std::optional<JoinState> join;
  bool applies_in_backward = false;
  bool has_buffers = false;
  bool synchronise = true;                // Off inside no_sync().
  bool buffers_are_due = true;            // The last forward was synchronized, so buffers may differ since.
  bool delayed_reduce_is_queued = false;  // Static graph: the first backward reduces at its end.
};

/// "rank 1 of 2: DistributedDataParallel".
std::string describe(const ProcessGroup& group);

}  // namespace lockstep
