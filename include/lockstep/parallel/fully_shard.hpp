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

/// The dtypes in which a fully sharded model computes and communicates, if they differ from those of its
/// parameters: torch.distributed.fsdp.MixedPrecisionPolicy. Ranks store and optimize their parts in the
/// parameters' dtype.
struct MixedPrecisionPolicy {
  /// Dtype of gathered weights, and of forward and backward.
  std::optional<at::ScalarType> param_dtype = std::nullopt;
  /// Dtype in which gradients are reduced, and accumulated without communication; by default `param_dtype`.
  std::optional<at::ScalarType> reduce_dtype = std::nullopt;
  /// Floating-point tensors that the model returns are converted to this dtype.
  std::optional<at::ScalarType> output_dtype = std::nullopt;
  /// Floating-point tensors among the arguments of the model and of its units are converted to `param_dtype`:
  /// tensors, optional tensors, and vectors and maps of tensors.
  bool cast_forward_inputs = true;

  bool changes_anything() const { return param_dtype || reduce_dtype || output_dtype; }
};

/// Names, defaults and meaning as in torch.distributed.fsdp.fully_shard.
struct FullyShardOptions {
  /// Free the weights of a unit after its forward and gather them again for its backward: ZeRO-3. Otherwise
  /// they are kept until its backward: ZeRO-2, with less communication and more memory. The weights of the
  /// model's root, which belong to no unit, are always kept.
  bool reshard_after_forward = true;
  /// In backward, gather the weights of the next unit while the current one computes.
  bool backward_prefetch = true;
  MixedPrecisionPolicy mp_policy = {};
  /// Classes of the units that are gathered separately ("Gpt2Block", case-insensitive); other units belong to
  /// the root. Empty: all units. Accelerate's name.
  std::vector<std::string> transformer_cls_names_to_wrap = {};
};

namespace parallel {

class FullySharded;

/// The ranks that shard the parameters among themselves, the ranks that have the same part, and all ranks.
struct ShardGroups {
  /// One group for all: parameters are sharded over it.
  ShardGroups(const ProcessGroup& group) : all(group), shard(group) {}  // NOLINT(google-explicit-constructor)
  /// The context's data group. If ParallelContextOptions::shard_size is set, each of its shard groups has a
  /// complete model: HSDP.
  ShardGroups(const ParallelContext& context);  // NOLINT(google-explicit-constructor)

  ProcessGroup all;
  ProcessGroup shard;
  std::optional<ProcessGroup> replica;
};

/// What fully_shard() accepts: a holder or a shared pointer of a `torch::nn::Module`, but not TorchScript.
template <class Module>
concept Shardable = requires(Module& module) {
  module_of(module).named_modules().begin()->value()->children();
};

/// A unit of a model, its name in the model, and its class without namespace and "Impl".
struct NamedUnit {
  std::string name;
  Unit* unit = nullptr;
  std::string class_name;
};

/// The units in a model, without the model itself. *Local*.
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

/// The part that does not depend on the module's type. Use it through FullyShardedDataParallel.
class FullyShardedDataParallelBase {
 public:
  /// While it exists, backward accumulates unsharded local gradients without communication; the first
  /// backward after it reduces the sum. Needs memory for all gradients. *Local*, but every rank must do the
  /// same.
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

  /// While it exists, the module's parameters are unsharded and have no gradients, to be saved or modified;
  /// modifications must be the same on every rank. Its destructor shards their current values, also of
  /// parameters that were given other data (torch::load, set_data); values of another shape are an error in
  /// the next forward. The constructor is *Collective*; do not create one between a forward and its backward.
  /// Meanwhile forward, also of the module itself, may be called without gradients; it does not communicate:
  /// *Local*. Parameters have their own dtype, whatever the policy says. FSDP's summon_full_params.
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

  /// Drops the gradients of all parameters, or fills them with zeros. Drops those that were accumulated under
  /// no_sync(), which an optimizer's zero_grad() does not see. *Local*.
  void zero_grad(bool set_to_none = true);

  /// Scales all gradients so that their norm over all ranks is at most `max_norm`, and returns the norm
  /// before, a scalar float tensor. *Collective*. Throws UsageError unless `max_norm` is above 0.
  at::Tensor clip_grad_norm_(double max_norm);

  /// The unsharded shape of a parameter, trained or frozen; empty if the tensor is not a parameter of the
  /// module. *Local*.
  std::optional<std::vector<std::int64_t>> full_sizes(const at::Tensor& parameter) const;
  /// Gathers something that has a value per element of `parameter`, such as optimizer state, from each rank's
  /// `part`. Returns it in the unsharded parameter's shape, on every rank. *Collective*. Throws UsageError if
  /// the tensor is not a parameter of the module.
  at::Tensor gather_full(const at::Tensor& parameter, const at::Tensor& part) const;
  /// This rank's part of such a tensor. *Local*. Throws DataError if its shape is not the parameter's,
  /// UsageError inside full_parameters().
  at::Tensor take_part(const at::Tensor& parameter, const at::Tensor& whole) const;

  /// Where this rank's part of a parameter begins, in elements of the unsharded parameter in row-major order;
  /// arbitrary for an empty part. *Local*. Throws UsageError as gather_full().
  std::int64_t part_begin(const at::Tensor& parameter) const;
  /// Changes when weights may have been written from outside: by full_parameters(), or by loading. *Local*.
  std::int64_t generation() const;

  /// The parameters that require a gradient now, each once, in the order of registration, as sharded on this
  /// rank. Valid until the next call.
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

  /// Null if the module behaves as if it were not wrapped.
  parallel::UnitHooks* root_hooks() const;

 private:
  std::shared_ptr<parallel::FullySharded> state_;
};

/// Data-parallel training in which each rank keeps 1/N of the weights, gradients and optimizer state of the
/// module. Created by fully_shard().
///
///     auto model = lockstep::fully_shard(gpt2, group);
///     auto loss = model(input_ids).loss;      // gathers the weights of each unit for its forward
///     loss.backward();                        // and for its backward; reduces its gradients to their owners
///     model.clip_grad_norm_(1.0);
///     optimizer.step();                       // on this rank's part alone
///
/// *Units.* The blocks of the module that are a lockstep::Unit (those of all models here are) are
/// gathered one by one. Parameters in no unit, or in several, belong to the root, which is gathered for the
/// whole forward. In a module without units, all parameters belong to the root.
///
/// *Between* forward and backward calls, each parameter is this rank's part of it, one-dimensional and
/// possibly empty; `.grad` is that part of the averaged gradient. Optimizers work on these parts: they must
/// be element-wise (SGD, Adam, AdamW), and may be created before or after sharding. Use full_parameters() for
/// any other computation with parameters outside of forward.
///
/// *Bits.* Over shared memory, in float32, losses, gradients and weights are bit-identical to
/// DistributedDataParallel's.
///
/// Parameters that no rank used in a backward get no gradient. Buffers are copied from rank 0 at the
/// beginning, and are each rank's own from then on. Weights are contiguous in memory. In a group of one,
/// without a mixed-precision policy, the module behaves as if it were not wrapped.
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

  /// The module's forward. *Collective*: every rank must call it the same number of times, with or without
  /// gradients.
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

  /// The module itself. Its own forward must only be called through this wrapper.
  Module& module() { return module_; }
  const Module& module() const { return module_; }

  /// Members of the module: `model->train()`.
  auto* operator->() { return &parallel::module_of(module_); }

 private:
  Module module_;
};

/// Shards `module`, a `torch::nn` holder or `std::shared_ptr`, over a ProcessGroup or the data group of a
/// ParallelContext: checks that all ranks have the same parameters and buffers, copies rank 0's values to the
/// others, and keeps this rank's part. The module stays sharded after the wrapper is destroyed. *Collective*.
/// Throws CommunicationError on every rank, which names the parameter and the ranks that differ; UsageError
/// if no parameter requires a gradient, if the model has no unit of a class that `options` name, if a
/// parameter is not on the group's device, or if the module is already sharded or wrapped in
/// DistributedDataParallel.
///
/// With ParallelContextOptions::shard_size, each shard group of that many ranks has the complete model, and
/// gradients are averaged over all ranks: HSDP. Weights are gathered within a shard group, for example on one
/// node; only gradients are sent between the groups.
template <class Module>
FullyShardedDataParallel<Module> fully_shard(Module module, const parallel::ShardGroups& groups,
                                             const FullyShardOptions& options = {}) {
  return FullyShardedDataParallel<Module>(std::move(module), groups, options);
}

}  // namespace lockstep
