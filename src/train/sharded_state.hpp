#pragma once

#include <vector>

#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/comm/process_group.hpp"
#include "lockstep/parallel/fully_shard.hpp"
#include "lockstep/parallel/module_tensors.hpp"

// The tensors of models, of which some may be fully sharded, as files have them: whole.
namespace lockstep::train {

using ShardedModels = std::vector<FullyShardedDataParallelBase*>;

/// Those of the models that have one of these tensors. *Local*.
ShardedModels sharded_among(const ShardedModels& models, const std::vector<NamedTensor>& state);

/// The state with whole tensors: a rank with `keep` gets copies on the CPU of those that are divided, the
/// others hold one at a time and get nothing. Without sharded tensors the state itself. *Collective* where
/// some are.
std::vector<NamedTensor> gather_whole(const ShardedModels& models, const std::vector<NamedTensor>& state,
                                      bool keep);

/// The state with tensors that have the whole ones' shapes, and no values where they are divided. *Local*.
std::vector<NamedTensor> whole_forms(const ShardedModels& models, const std::vector<NamedTensor>& state);

/// Gives all ranks the values that rank 0 has read for `state`, each rank its part of what is divided. A rank
/// holds one whole tensor at a time. *Collective*.
void scatter_whole(const ShardedModels& models, const ProcessGroup& group, const SafeTensors& content,
                   const std::vector<NamedTensor>& state);

}  // namespace lockstep::train
