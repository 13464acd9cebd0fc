#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.hpp"
#include "lockstep/core/world.hpp"

namespace lockstep {

/// Which ranks of a job form a group.
enum class ParallelMode {
  global,   ///< All. OSLO's GLOBAL.
  data,     ///< The same part of the model, different samples. OSLO's DATA.
  replica,  ///< Of a data group, those at the same position of their shard groups. DeviceMesh's
            ///< "dp_replicate".
  shard,    ///< Of a data group, neighbors that shard its state among themselves. DeviceMesh's "dp_shard".
  model,    ///< Different parts of one model, the same samples. OSLO's MODEL.
};

struct ParallelContextOptions {
  /// Ranks that train on different samples; 0: all. Must divide the world size; the remaining factor, world /
  /// data_parallel_size, is the number of parts of a model, which the program itself splits.
  int data_parallel_size = 0;

  /// Ranks of a data group that shard state among themselves (ZeroRedundancyOptimizer); 1: none do. Must
  /// divide data_parallel_size. Best the number of ranks per node, so that shards stay on the node and only
  /// replicas use the network.
  int shard_size = 1;
};

/// The ranks of a world as a grid of data_parallel_size / shard_size replicas x shard_size shards x parts of
/// the model, numbered row by row: parts vary fastest, then shards, then replicas. Rank ((replica *
/// shard_size) + shard) * model_size + part. Names follow OSLO's ParallelContext and PyTorch's DeviceMesh.
///
///     const auto context = lockstep::ParallelContext::from_environment({.data_parallel_size = 4});
///     lockstep::DistributedDataParallel ddp(model, context);    // averages over the data group
///     const int rank = context.get_local_rank(lockstep::ParallelMode::data);   // for DistributedSampler
///
/// A handle; copies refer to the same context. All methods except the constructors and from_environment are
/// *Local* and may be called from any thread.
class ParallelContext {
 public:
  /// Joins the world that the environment variables describe (see World) and splits it. *Collective*. Throws
  /// UsageError if the sizes do not divide the world, and as ProcessGroup::init.
  static ParallelContext from_environment(const ParallelContextOptions& options = {},
                                          const ProcessGroupOptions& group_options = {});

  /// Splits an existing group: `world` is the group of mode global. *Collective*. Throws UsageError if the
  /// sizes do not divide it.
  explicit ParallelContext(const ProcessGroup& world, const ParallelContextOptions& options = {});

  /// This rank's group of a mode.
  const ProcessGroup& get_group(ParallelMode mode) const;

  /// This rank's rank in its group of a mode, and the size of that group.
  int get_local_rank(ParallelMode mode) const;
  int get_world_size(ParallelMode mode) const;

  /// The global ranks of this rank's group of a mode, in the order of their local ranks.
  const std::vector<int>& get_ranks_in_group(ParallelMode mode) const;
  bool is_first_rank(ParallelMode mode) const { return get_local_rank(mode) == 0; }
  bool is_last_rank(ParallelMode mode) const { return get_local_rank(mode) == get_world_size(mode) - 1; }

  int get_global_rank() const { return get_local_rank(ParallelMode::global); }

  /// The sizes of the grid and this rank's position in it: replica, shard, part of the model.
  std::vector<int> shape() const;
  std::vector<int> get_coordinate() const;

  /// The data group, so that a context can be passed wherever gradients are averaged over a group.
  operator const ProcessGroup&() const { return get_group(ParallelMode::data); }

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace lockstep
