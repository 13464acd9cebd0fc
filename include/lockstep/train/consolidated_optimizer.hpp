#pragma once

#include <vector>

#include "lockstep/checkpoint/optimizer_state.hpp"
#include "lockstep/comm/process_group.hpp"
#include "lockstep/optim/zero_redundancy_optimizer.hpp"
#include "lockstep/parallel/fully_shard.hpp"

namespace lockstep {

/// The whole state of an optimizer that is divided over ranks, in the form of one that is not: what
/// Accelerator::save_state writes, and consolidate_state_dict in Python. Ranks with `keep` get all of it, on
/// the group's device; the others hold one tensor at a time and get the options only. `names` as for
/// optimizer_state. *Collective* on the optimizer's group. Throws UsageError for a class of optimizer that
/// optimizer_state does not know.
OptimizerState consolidate_optimizer_state(const optim::ZeroRedundancyOptimizer& optimizer,
                                           const std::vector<NamedTensor>& names, bool keep = true);

/// Gives each rank its own share of the state that rank 0 of `group` has, whoever wrote it and on however
/// many ranks; what other ranks give is ignored. `group` holds the optimizer's group, or is it. *Collective*
/// on `group`. Throws DataError, saying `where`, as load_optimizer_state; then nothing has changed.
void load_consolidated(optim::ZeroRedundancyOptimizer& optimizer, const std::vector<NamedTensor>& names,
                       const OptimizerState& state, const ProcessGroup& group, const std::string& where);

/// The whole state of an optimizer on fully sharded models, in the form of one on whole models: a
/// checkpoint's. Ranks with `keep` get all of it, on the group's device; the others hold one tensor at a time
/// and get the options only. What belongs to none of `models` is each rank's own. `names` as for
/// optimizer_state. *Collective*. Throws UsageError as optimizer_state.
OptimizerState consolidate_optimizer_state(const std::vector<const FullyShardedDataParallelBase*>& models,
                                           const torch::optim::Optimizer& optimizer,
                                           const std::vector<NamedTensor>& names, bool keep = true);
/// Likewise for one model, under its own names.
OptimizerState consolidate_optimizer_state(const FullyShardedDataParallelBase& model,
                                           const torch::optim::Optimizer& optimizer, bool keep = true);

/// Gives each rank its parts of the whole state that rank 0 of `group` has, whoever wrote it and on however
/// many ranks; what other ranks give is ignored. A rank holds one whole tensor at a time. *Collective* on
/// `group`. Throws DataError, saying `where`, as load_optimizer_state; then nothing has changed.
void load_consolidated(const std::vector<const FullyShardedDataParallelBase*>& models,
                       torch::optim::Optimizer& optimizer, const std::vector<NamedTensor>& names,
                       const OptimizerState& state, const ProcessGroup& group, const std::string& where);
/// Likewise for one model and its group, under its own names. *Collective*.
void load_consolidated(const FullyShardedDataParallelBase& model, torch::optim::Optimizer& optimizer,
                       const OptimizerState& state, const std::string& where);

}  // namespace lockstep
