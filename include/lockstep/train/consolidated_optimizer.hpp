#pragma once

#include <vector>

#include "lockstep/checkpoint/optimizer_state.hpp"
#include "lockstep/comm/process_group.hpp"
#include "lockstep/optim/zero_redundancy_optimizer.hpp"
#include "lockstep/parallel/fully_shard.hpp"

namespace lockstep {

/// The full state of an optimizer that is sharded over ranks, in the form of an unsharded one: what
/// Accelerator::save_state writes, and consolidate_state_dict in Python. Ranks with `keep` get all of it, on
/// the group's device; the others hold one tensor at a time and get only the options. `names` as for
/// optimizer_state. *Collective* on the optimizer's group. Throws UsageError if optimizer_state does not
/// support the class of the optimizer.
OptimizerState consolidate_optimizer_state(const optim::ZeroRedundancyOptimizer& optimizer,
                                           const std::vector<NamedTensor>& names, bool keep = true);

/// Gives each rank its share of the state that rank 0 of `group` has, however many ranks wrote it; the state
/// of other ranks is ignored. `group` contains or is the optimizer's group. *Collective* on `group`. Throws
/// DataError, with `where` in its text, as load_optimizer_state does; then nothing has changed.
void load_consolidated(optim::ZeroRedundancyOptimizer& optimizer, const std::vector<NamedTensor>& names,
                       const OptimizerState& state, const ProcessGroup& group, const std::string& where);

/// The full state of an optimizer of fully sharded models, in the form of one of unsharded models, as in a
/// checkpoint. Ranks with `keep` get all of it, on the group's device; the others hold one tensor at a time
/// and get only the options. State that belongs to none of `models` is each rank's own. `names` as for
/// optimizer_state. *Collective*. Throws UsageError as optimizer_state does.
OptimizerState consolidate_optimizer_state(const std::vector<const FullyShardedDataParallelBase*>& models,
                                           const torch::optim::Optimizer& optimizer,
                                           const std::vector<NamedTensor>& names, bool keep = true);
/// The same for one model, by its own names.
OptimizerState consolidate_optimizer_state(const FullyShardedDataParallelBase& model,
                                           const torch::optim::Optimizer& optimizer, bool keep = true);

/// Gives each rank its parts of the full state that rank 0 of `group` has, however many ranks wrote it; the
/// state of other ranks is ignored. A rank holds one full tensor at a time. *Collective* on `group`. Throws
/// DataError, with `where` in its text, as load_optimizer_state does; then nothing has changed.
void load_consolidated(const std::vector<const FullyShardedDataParallelBase*>& models,
                       torch::optim::Optimizer& optimizer, const std::vector<NamedTensor>& names,
                       const OptimizerState& state, const ProcessGroup& group, const std::string& where);
/// The same for one model and its group, by its own names. *Collective*.
void load_consolidated(const FullyShardedDataParallelBase& model, torch::optim::Optimizer& optimizer,
                       const OptimizerState& state, const std::string& where);

}  // namespace lockstep
