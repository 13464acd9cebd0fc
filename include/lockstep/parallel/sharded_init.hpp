#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "lockstep/parallel/fully_shard.hpp"
#include "lockstep/parallel/module_tensors.hpp"
#include "lockstep/parallel/unit.hpp"

namespace lockstep {

/// Creates models that are larger than one rank's memory. While it exists, each unit of the models that this
/// thread creates is sharded over the ranks as soon as it is complete, with rank 0's values.
/// deepspeed.zero.Init.
///
///     models::Gpt2LMHeadModel gpt2{nullptr};
///     {
///       const lockstep::ShardedInit init(group);
///       gpt2 = models::Gpt2LMHeadModel(config);             // one block is whole at a time
///     }
///     auto model = lockstep::fully_shard(gpt2, group);      // and again one at a time
///
/// All ranks must create the same models: creating one is *Collective*. Their values are the same as without
/// it. Forward of such a model throws before fully_shard() or Accelerator::prepare(). Parameters of a model
/// that are not in a unit are not sharded. Does nothing in a group of one.
///
/// The models of lockstep::models report complete blocks; your own model does so with made().
class [[nodiscard]] ShardedInit {
 public:
  /// `groups`: those that fully_shard() will get. *Local*.
  explicit ShardedInit(const parallel::ShardGroups& groups);
  ~ShardedInit();
  ShardedInit(const ShardedInit&) = delete;
  ShardedInit& operator=(const ShardedInit&) = delete;

 private:
  parallel::ShardGroups groups_;
  const parallel::ShardGroups* before_;
};

namespace parallel {

/// Shards the unit if a ShardedInit exists on this thread; *Collective* then.
void divide_unit(Unit& unit, const std::vector<NamedTensor>& parameters,
                 const std::vector<NamedTensor>& buffers);

/// The unsharded shape of a parameter, also if a ShardedInit has sharded it. *Local*.
std::vector<std::int64_t> initial_sizes(const at::Tensor& parameter);

/// Calls `give(whole)`, which sets all values of a parameter that is not wrapped yet. `whole` is the
/// parameter itself; if a ShardedInit has sharded it, it is an unsharded tensor, of which each rank takes its
/// part: *Collective* then.
void set_initial_values(const at::Tensor& parameter, const std::function<void(const at::Tensor&)>& give);

}  // namespace parallel

/// Marks a block as complete, in the constructor of the model that contains it:
///
///     blocks->push_back(lockstep::made(Block(config)));
///
/// A ShardedInit then shards it. Values that are set after the block's constructor, for example by an
/// initialization of all layers of a model, must be set with parallel::set_initial_values(). *Collective*
/// under a ShardedInit, otherwise *Local*.
template <class Block>
Block made(Block block) {
  parallel::divide_unit(parallel::module_of(block), parallel::named_parameters_of(block),
                        parallel::named_buffers_of(block));
  return block;
}

}  // namespace lockstep
