#pragma once

#include <ATen/core/grad_mode.h>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <utility>
#include <vector>

#include "comm/group_observer.hpp"
#include "lockstep/comm/trace.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "parallel/comm_hook_runner.hpp"
#include "parallel/parameter_watch.hpp"
#include "parallel/plain_mean.hpp"
#include "parallel/reducer_setup.hpp"
#include "parallel/straggler_detector.hpp"

namespace lockstep {

/// While a join() runs.
struct JoinState {
  JoinOptions options;
  /// The rank whose buffers are used: the last one that still has batches.
  int authority = 0;
};

/// A forward that recorded a graph. Kept by the graph.
struct DdpForward {
  bool is_synchronised;
  bool had_backward = false;
  /// The group's generation at the time.
  std::uint64_t generation = 1;
  /// The parameters that were frozen at the time, as ParameterWatch::frozen().
  std::string frozen;
};

struct DdpState final : comm::GroupObserver, std::enable_shared_from_this<DdpState> {
  DdpState(const std::vector<NamedTensor>& all_parameters, std::vector<NamedTensor> trained_parameters,
           const ProcessGroup& ddp_group, const DistributedDataParallelOptions& ddp_options);

  /// Destroys the reducer, and drops the gradients and what is left of a backward that failed.
  void release() override;
  /// A new reducer with the layout that the next backward would have had.
  void reseat() override;
  /// Buffers follow each synchronized forward, instead of preceding the next one: as many messages, and
  /// between two steps all ranks have rank 0's.
  void expect_losses() override { sends_buffers_after = true, buffers_are_due = false; }
  /// Compares the models of the ranks, as a process that replaces one does when it wraps its model.
  /// *Collective*.
  void check_agreement(const std::string& complaint) const;

  void install_reducer(BucketLayout buckets);
  /// Creates the runner if needed; from then on the reducer communicates through it.
  parallel::CommHookRunner& require_hook_runner();
  void rebuild_buckets();
  /// Call it before the buckets of a step are sent.
  void backward_begins();
  /// Expects the gradients of a backward from `outputs`, which are searched for unused parameters if that is
  /// asked for.
  void expect_gradients(const std::vector<at::Tensor>& outputs);
  /// Lets the backward from a forward's outputs report itself.
  void watch_backward(const std::vector<at::Tensor>& outputs, bool is_synchronised);
  /// Called in backward, before any gradient of the forward's parameters.
  void backward_reaches(DdpForward& call);
  /// Call it before a forward: a backward that failed while it was recorded as a CUDA graph has sent nothing.
  void forget_failed_recording();
  /// Copies values of `root` to the other ranks. *Collective*.
  void broadcast(const std::vector<NamedTensor>& named, int root);
  /// The same before a forward. Graphs of forwards whose backward is still to come may have saved a buffer:
  /// constants are not written again, and statistics that a kernel keeps (batch norm's) not counted as
  /// changed. *Collective*.
  void broadcast_buffers(const std::vector<NamedTensor>& named, int root);
  /// Remembers their versions, to find those that a kernel changes in the next forward.
  void note_buffers(const std::vector<NamedTensor>& named);

  /// The first backward of a static graph is synchronized whatever no_sync() says: c10d learns the graph from
  /// it, and fails without it. Averaging gradients once more does not change them.
  bool synchronises() const {
    return reducer != nullptr && (synchronise || learns_graph()) && at::GradMode::is_enabled();
  }
  bool learns_graph() const { return options.static_graph && !delayed_reduce_is_queued; }
  bool searches_unused() const { return options.find_unused_parameters && !options.static_graph; }

  std::vector<NamedTensor> parameters;
  /// All of the module, for check_agreement().
  std::vector<NamedTensor> module_parameters, module_buffers;
  parallel::ParameterWatch parameter_watch;
  ProcessGroup group;
  /// As describe(group).
  std::shared_ptr<const std::string> who;
  DistributedDataParallelOptions options;
  std::shared_ptr<parallel::TimedReducer> reducer;  // Null in a group of one.
  // The reducer uses it without a null check when the set of unused parameters changes.
  std::shared_ptr<c10d::Logger> logger;
  std::shared_ptr<parallel::CommHookRunner> hook_runner;  // Null if the reducer averages by itself.
  std::shared_ptr<parallel::PlainMean> mean;              // The runner's default hook.
  parallel::StragglerDetector watch;
  std::optional<trace::Range> forward;  // Set during a forward.
  std::optional<JoinState> join;
  bool applies_in_backward = false;
  bool has_own_hook = false;  // The program has registered one.
  bool has_buffers = false;
  bool synchronise = true;                  // Off inside no_sync().
  bool buffers_are_due = true;              // The last forward was synchronized, so buffers may differ since.
  bool sends_buffers_after = false;         // Ranks may be lost: see expect_losses().
  bool delayed_reduce_is_queued = false;    // Static graph: the first backward reduces at its end.
  bool backward_runs = false;               // Also after a backward that threw.
  bool backward_is_recorded = false;        // The last backward was being recorded as a CUDA graph.
  bool backward_is_unfinished = false;      // The gradients of the last backward were not all averaged.
  std::optional<BucketLayout> kept_layout;  // Between release() and reseat().

 private:
  /// Those whose graph still exists and had no backward.
  std::vector<std::weak_ptr<DdpForward>>& waiting_forwards();

  /// A buffer's implementation and its version after it was last sent.
  using SentBuffer = std::pair<const void*, std::int64_t>;

  std::vector<std::weak_ptr<DdpForward>> forwards_;
  std::vector<SentBuffer> sent_;
};

/// "rank 1 of 2: DistributedDataParallel".
std::string describe(const ProcessGroup& group);

}  // namespace lockstep
