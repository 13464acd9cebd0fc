#pragma once

#include <optional>
#include <vector>

#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "lockstep/parallel/fully_shard.hpp"

namespace lockstep {

/// A model in one of the wrappers that train it on several ranks: what the functions of an Accelerator take,
/// whichever it is. A handle, which the wrapper must outlive.
class WrappedModel {
 public:
  // Both convert, so that a function takes either.
  WrappedModel(DistributedDataParallelBase& model) : ddp_(&model) {}    // NOLINT(google-explicit-constructor)
  WrappedModel(FullyShardedDataParallelBase& model) : fsdp_(&model) {}  // NOLINT(google-explicit-constructor)

  /// The one that it is; null for the other.
  DistributedDataParallelBase* ddp() const noexcept { return ddp_; }
  FullyShardedDataParallelBase* fsdp() const noexcept { return fsdp_; }

  /// The parameters that are trained: each once, in the order of registration.
  const std::vector<NamedTensor>& parameters() const {
    return fsdp_ != nullptr ? fsdp_->parameters() : ddp_->parameters();
  }

  /// The no_sync() of either wrapper, for as long as it lives. *Local*, but every rank must do the same.
  class [[nodiscard]] NoSync {
   public:
    explicit NoSync(WrappedModel model) {
      if (model.fsdp_ != nullptr) {
        fsdp_.emplace(*model.fsdp_);
      } else {
        ddp_.emplace(*model.ddp_);
      }
    }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    std::optional<DistributedDataParallelBase::NoSync> ddp_;
    std::optional<FullyShardedDataParallelBase::NoSync> fsdp_;
  };

  NoSync no_sync() const { return NoSync(*this); }

 private:
  DistributedDataParallelBase* ddp_ = nullptr;
  FullyShardedDataParallelBase* fsdp_ = nullptr;
};

}  // namespace lockstep
