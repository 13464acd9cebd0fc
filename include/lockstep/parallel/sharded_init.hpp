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

/// Makes models that are larger than one rank's memory: while it lives, each unit of the models that this
/// thread makes is divided over the ranks as soon as it is complete, with rank 0's values.
/// deepspeed.zero.Init.
///
///     models::Gpt2LMHeadModel gpt2{nullptr};
///     {
///       const lockstep::ShardedInit init(group);
///       gpt2 = models::Gpt2LMHeadModel(config);             // one block is whole at a time
///     }
///     auto model = lockstep::fully_shard(gpt2, group);      // and again one at a time
///
/// All ranks must make the same models: making one is *Collective*. Their values are those that they would
/// have without it. A model that was made so has no forward before fully_shard() or Accelerator::prepare(). A
/// model's own parameters, beside those of its units, stay whole. In a group of one it does nothing.
///
/// The models of lockstep::models say which blocks are complete; a model of your own does so by made().
class [[nodiscard]] ShardedInit {
 public:
  /// The groups that fully_shard() will get. *Local*.
  explicit ShardedInit(const parallel::ShardGroups& groups);
  ~ShardedInit();
  ShardedInit(const ShardedInit&) = delete;
  ShardedInit& operator=(const ShardedInit&) = delete;

 private:
  parallel::ShardGroups groups_;
  const parallel::ShardGroups* before_;
};

namespace parallel {

/// Divides the unit where a ShardedInit of this thread lives. *Collective* there.
void divide_unit(Unit& unit, const std::vector<NamedTensor>& parameters,
                 const std::vector<NamedTensor>& buffers);

/// The shape that the parameter has when it is whole, also where a ShardedInit has divided it. *Local*.
std::vector<std::int64_t> initial_sizes(const at::Tensor& parameter);

/// Calls `give(whole)`, which sets all values of a parameter that nobody has wrapped: of the parameter
/// itself, or where a ShardedInit has divided it of a whole one, of which each rank takes its part:
/// *Collective* then.
void set_initial_values(const at::Tensor& parameter, const std::function<void(const at::Tensor&)>& give);

}  // namespace parallel

/// Says that a block is complete, in the constructor of the model that it belongs to:
///
///     blocks->push_back(lockstep::made(Block(config)));
///
/// A ShardedInit divides it then. Its constructor has set its parameters' values; what sets them later, as a
/// rule for all layers of a model, goes through parallel::set_initial_values(). *Collective* under a
/// ShardedInit, else *Local*.
template <class Block>
Block made(Block block) {
  parallel::divide_unit(parallel::module_of(block), parallel::named_parameters_of(block),
                        parallel::named_buffers_of(block));
  return block;
}

}  // namespace lockstep
