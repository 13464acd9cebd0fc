#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "lockstep/parallel/adapter_layer.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "lockstep/parallel/fully_shard.hpp"
#include "lockstep/train/frozen_model.hpp"

namespace lockstep {

/// What files have of a model. The tensors are the model's own; each function may be called at any time.
/// *Local*.
struct ModelContents {
  /// Parameters and buffers, by the module's own names.
  std::function<std::vector<NamedTensor>()> state;
  std::function<std::vector<NamedTensor>()> parameters;
  std::function<std::optional<parallel::AdapterForm>()> adapter;
};

/// The contents of a module, whose holder they keep.
template <class Module>
ModelContents contents_of(const Module& module) {
  return {.state = [module = Module(module)]() mutable { return parallel::named_state_of(module); },
          .parameters = [module = Module(module)]() mutable { return parallel::named_parameters_of(module); },
          .adapter = [module = Module(module)]() mutable { return parallel::adapter_of(module); }};
}

/// What save_model() writes of a module: parameters and buffers, or of one with an adapter that alone.
/// *Local*.
struct SavedForm {
  std::vector<NamedTensor> state;
  std::optional<parallel::AdapterForm> adapter;
};
template <class Module>
SavedForm saved_form(Module& module) {
  return {parallel::named_state_of(module), parallel::adapter_of(module)};
}

/// A reference to a model in either wrapper, or to a frozen model, as the functions of an Accelerator take
/// it. A handle; the wrapper must outlive it.
class WrappedModel {
 public:
  // They convert, so that a function takes any.
  WrappedModel(DistributedDataParallelBase& model) : ddp_(&model) {}    // NOLINT(google-explicit-constructor)
  WrappedModel(FullyShardedDataParallelBase& model) : fsdp_(&model) {}  // NOLINT(google-explicit-constructor)
  WrappedModel(const FrozenModelBase& /*model*/) {}                     // NOLINT(google-explicit-constructor)

  /// The wrapper; null if it is the other one, or none.
  DistributedDataParallelBase* ddp() const noexcept { return ddp_; }
  FullyShardedDataParallelBase* fsdp() const noexcept { return fsdp_; }

  /// The trained parameters, each once, in the order of registration.
  const std::vector<NamedTensor>& parameters() const {
    if (fsdp_ != nullptr) return fsdp_->parameters();
    return ddp_ != nullptr ? ddp_->parameters() : FrozenModelBase::parameters();
  }

  /// The no_sync() of the wrapper, if there is one, while it exists. *Local*, but every rank must do the
  /// same.
  class [[nodiscard]] NoSync {
   public:
    explicit NoSync(WrappedModel model) {
      if (model.fsdp_ != nullptr) fsdp_.emplace(*model.fsdp_);
      if (model.ddp_ != nullptr) ddp_.emplace(*model.ddp_);
    }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    std::optional<DistributedDataParallelBase::NoSync> ddp_;
    std::optional<FullyShardedDataParallelBase::NoSync> fsdp_;
  };

  NoSync no_sync() const { return NoSync(*this); }
  void zero_grad(bool set_to_none = true) const {
    if (fsdp_ != nullptr) fsdp_->zero_grad(set_to_none);
    if (ddp_ != nullptr) ddp_->zero_grad(set_to_none);
  }

 private:
  DistributedDataParallelBase* ddp_ = nullptr;
  FullyShardedDataParallelBase* fsdp_ = nullptr;
};

}  // namespace lockstep
