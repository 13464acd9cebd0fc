#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/process_group.hpp"
#include "lockstep/parallel/module_tensors.hpp"
#include "lockstep/parallel/parallel_context.hpp"
#include "lockstep/parallel/unit.hpp"

namespace lockstep {

/// In which dtypes a fully sharded model computes and sends, where they are not its parameters' own:
/// torch.distributed.fsdp.MixedPrecisionPolicy. Ranks keep and optimize their parts in the parameters' dtype.
struct MixedPrecisionPolicy {
  /// Weights are gathered, and forward and backward compute, in this one.
  std::optional<at::ScalarType> param_dtype = std::nullopt;
  /// Gradients are reduced, and without sending added up, in this one; otherwise in `param_dtype`.
  std::optional<at::ScalarType> reduce_dtype = std::nullopt;
  /// Floating-point tensors that the model returns are converted to this one.
  std::optional<at::ScalarType> output_dtype = std::nullopt;
  /// Floating-point tensors among the arguments of the model and of its units are converted to `param_dtype`:
  /// tensors, optional ones, and vectors and maps of tensors.
  bool cast_forward_inputs = true;

  bool changes_anything() const { return param_dtype || reduce_dtype || output_dtype; }
};

/// Names, defaults and meaning as in torch.distributed.fsdp.fully_shard.
struct FullyShardOptions {
  /// Free the weights of a unit after its forward and gather them again for its backward: ZeRO-3. Otherwise
  /// they stay until its backward: ZeRO-2, with less to send and more memory. The weights of the model's
  /// root, which belong to no unit, always stay.
  bool reshard_after_forward = true;
  /// In backward, gather the weights of the next unit while this one computes.
  bool backward_prefetch = true;
  MixedPrecisionPolicy mp_policy = {};
  /// The classes of the units that are gathered by themselves ("Gpt2Block"; in any case of letters); others
  /// belong to the root. Empty: all units. Accelerate's name.
  std::vector<std::string> transformer_cls_names_to_wrap = {};
};

namespace parallel {

class FullySharded;

/// Which ranks have a part of the parameters each, and which have the same part; together all that train.
struct ShardGroups {
  /// One group for all: everything is divided over it.
  ShardGroups(const ProcessGroup& group) : all(group), shard(group) {}  // NOLINT(google-explicit-constructor)
  /// The context's data group. Where that is divided (ParallelContextOptions::shard_size) its shard groups
  /// have a model each: HSDP.
  ShardGroups(const ParallelContext& context);  // NOLINT(google-explicit-constructor)

  ProcessGroup all;
  ProcessGroup shard;
  std::optional<ProcessGroup> replica;
};

/// What fully_shard() takes: a holder or a shared pointer of a `torch::nn::Module`, and no TorchScript.
template <class Module>
concept Shardable = requires(Module& module) {
  module_of(module).named_modules().begin()->value()->children();
};

/// A unit of a model, its name there, and its class without namespace and "Impl".
struct NamedUnit {
  std::string name;
  Unit* unit = nullptr;
  std::string class_name;
};

/// The units in a model; the model itself is none. *Local*.
template <class Module>
std::vector<NamedUnit> units_of(Module& module) {
  std::vector<NamedUnit> units;
  for (const auto& entry : module_of(module).named_modules()) {
    auto* const unit = dynamic_cast<Unit*>(entry.value().get());
    if (unit != nullptr && !entry.key().empty()) units.push_back({entry.key(), unit, class_of(entry)});
  }
  return units;
}

}  // namespace parallel

/// What does not depend on the module's type. Use it through FullyShardedDataParallel.
class FullyShardedDataParallelBase {
 public:
  /// While it lives, backward adds to whole local gradients and sends nothing; the first backward after it
  /// reduces the sum. Takes the memory of all gradients. *Local*, but every rank must do the same.
  class [[nodiscard]] NoSync {
   public:
    explicit NoSync(FullyShardedDataParallelBase& model);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    std::shared_ptr<parallel::FullySharded> state_;
    bool before_;
  };

  NoSync no_sync() { return NoSync(*this); }

  /// While it lives, the module's parameters are whole and have no gradients: to be saved, or to be written
  /// to, the same on every rank. At its end each rank takes its part of what they are then. Making one is
  /// *Collective*; not between a forward and its backward. Forward, of the module too, may be called without
  /// gradients meanwhile, and sends nothing: *Local*. In the parameters' own dtype,
  /// whatever the policy says. FSDP's summon_full_params.
  class [[nodiscard]] FullParameters {
   public:
    explicit FullParameters(FullyShardedDataParallelBase& model);
    ~FullParameters();
    FullParameters(const FullParameters&) = delete;
    FullParameters& operator=(const FullParameters&) = delete;

   private:
    std::shared_ptr<parallel::FullySharded> state_;
  };

  FullParameters full_parameters() { return FullParameters(*this); }

  /// Drops the gradients of all parameters, or fills them with zeros. *Local*.
  void zero_grad(bool set_to_none = true);

  /// Scales all gradients so that their norm over all ranks is at most `max_norm`, and returns what it was: a
  /// tensor of one float. *Collective*. Throws UsageError unless `max_norm` is more than 0.
  at::Tensor clip_grad_norm_(double max_norm);

  /// The shape of the whole parameter; nothing for what is no parameter of the module, trained or frozen.
  /// *Local*.
  std::optional<std::vector<std::int64_t>> full_sizes(const at::Tensor& parameter) const;
  /// The whole of something that has a value for each element of `parameter`, such as an optimizer's state,
  /// of which each rank gives its `part`; in the shape of the whole parameter, on every rank. *Collective*.
  /// Throws UsageError for what is no parameter of the module.
  at::Tensor gather_full(const at::Tensor& parameter, const at::Tensor& part) const;
  /// This rank's part of such a whole. *Local*. Throws DataError for another shape than the parameter's.
  at::Tensor take_part(const at::Tensor& parameter, const at::Tensor& whole) const;

  /// The parameters that are trained: each once, in the order of registration, as this rank has them.
  const std::vector<NamedTensor>& parameters() const;

  /// All ranks that train.
  const ProcessGroup& process_group() const;
  const FullyShardOptions& options() const;

 protected:
  FullyShardedDataParallelBase(const std::vector<NamedTensor>& parameters,
                               const std::vector<NamedTensor>& buffers,
                               const std::vector<parallel::NamedUnit>& units,
                               const parallel::ShardGroups& groups, const FullyShardOptions& options);
  ~FullyShardedDataParallelBase() = default;
  FullyShardedDataParallelBase(const FullyShardedDataParallelBase&) = default;
  FullyShardedDataParallelBase& operator=(const FullyShardedDataParallelBase&) = default;

  /// Null where the module behaves as if it were not wrapped.
  parallel::UnitHooks* root_hooks() const;

 private:
  std::shared_ptr<parallel::FullySharded> state_;
};

/// Data-parallel training in which each rank keeps 1/N of the weights, gradients and optimizer state of the
/// module. Made by fully_shard().
///
///     auto model = lockstep::fully_shard(gpt2, group);
///     auto loss = model(input_ids).loss;      // gathers the weights of each unit for its forward
///     loss.backward();                        // and for its backward; reduces its gradients to their owners
///     model.clip_grad_norm_(1.0);
///     optimizer.step();                       // on this rank's part alone
///
/// *Units.* The blocks of the module that are a lockstep::Unit (those of GPT-2, BERT and BART are) are
/// gathered one by one; what lies in no unit, or in several, is the root's, which is gathered for the whole
/// forward. A module without units is all root.
///
/// *Between* forward and backward calls each parameter is this rank's part of it, with one dimension, and may
/// be empty; `.grad` is that part of the gradient's mean. An optimizer works on these: it must treat every
/// element by itself (SGD, Adam, AdamW), and may be made before or after sharding. Nothing else may be
/// computed from parameters outside of forward, but inside full_parameters().
///
/// *Bits.* Over shared memory, in float32, losses, gradients and weights are DistributedDataParallel's.
///
/// Parameters that took no part in a backward on any rank get no gradient. Buffers are those of rank 0 at the
/// beginning, and each rank's own from then on. Weights are contiguous in memory. In a group of one, without
/// a policy of dtypes, the module behaves as if it were not wrapped.
template <class Module>
class FullyShardedDataParallel : public FullyShardedDataParallelBase {
 public:
  /// As fully_shard().
  FullyShardedDataParallel(Module module, const parallel::ShardGroups& groups,
                           const FullyShardOptions& options = {})
      : FullyShardedDataParallelBase(parallel::named_parameters_of(module),
                                     parallel::named_buffers_of(module), parallel::units_of(module), groups,
                                     options),
        module_(std::move(module)) {}

  /// The module's forward. *Collective*: every rank must call it equally often, with gradients or without.
  template <class... Inputs>
  auto operator()(Inputs&&... inputs) {
    const auto run = [&](auto&&... values) {
      return parallel::call(module_, std::forward<decltype(values)>(values)...);
    };
    auto* const hooks = root_hooks();
    return hooks ? parallel::call_between(*hooks, run, std::forward<Inputs>(inputs)...)
                 : run(std::forward<Inputs>(inputs)...);
  }

  template <class... Inputs>
  auto forward(Inputs&&... inputs) {
    return (*this)(std::forward<Inputs>(inputs)...);
  }

  /// The module itself. Its own forward must not be called but through this wrapper.
  Module& module() { return module_; }
  const Module& module() const { return module_; }

  /// Members of the module: `model->train()`.
  auto* operator->() { return &parallel::module_of(module_); }

 private:
  Module module_;
};

/// Shards `module`, a `torch::nn` holder or `std::shared_ptr`, over a ProcessGroup or the data group of a
/// ParallelContext: checks that all ranks have the same parameters and buffers, copies rank 0's values to the
/// others, and leaves each rank its part. The module stays sharded when the wrapper is gone. *Collective*.
/// Throws CommunicationError on every rank, naming the parameter and the ranks that differ; UsageError when
/// no parameter requires a gradient, when the model has no unit of a class that `options` name, when one is
/// not on the group's device, and for a module that is sharded already or that DistributedDataParallel holds.
///
/// With ParallelContextOptions::shard_size each shard group of so many ranks has the whole model, and
/// gradients are averaged over all: HSDP. What is gathered stays within a shard group, on a node for example,
/// and between them go gradients alone.
template <class Module>
FullyShardedDataParallel<Module> fully_shard(Module module, const parallel::ShardGroups& groups,
                                             const FullyShardOptions& options = {}) {
  return FullyShardedDataParallel<Module>(std::move(module), groups, options);
}

}  // namespace lockstep
