#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/tensor_source.hpp"
#include "lockstep/checkpoint/optimizer_state.hpp"
#include "lockstep/comm/process_group.hpp"
#include "lockstep/parallel/fully_shard.hpp"
#include "lockstep/parallel/module_tensors.hpp"
#include "lockstep/train/model_files.hpp"

// The tensors of models, some of which may be fully sharded, in the form that files have: unsharded.
namespace lockstep::train {

using ShardedModels = std::vector<FullyShardedDataParallelBase*>;

/// The models that have one of these tensors. *Local*.
ShardedModels sharded_among(const ShardedModels& models, const std::vector<NamedTensor>& state);

/// The state with full tensors. A rank with `keep` gets CPU copies of the sharded ones; other ranks hold one
/// at a time and get nothing. Without sharded tensors, returns `state`. *Collective* if some are sharded.
std::vector<NamedTensor> gather_whole(const ShardedModels& models, const std::vector<NamedTensor>& state,
                                      bool keep);

/// The state with tensors of full shape; sharded ones are meta tensors. *Local*.
std::vector<NamedTensor> whole_forms(const ShardedModels& models, const std::vector<NamedTensor>& state);

/// Full tensors that are gathered one at a time, in the same order on all ranks. Each rank uses or drops each
/// tensor. One thread at a time.
class GatheredTensors {
 public:
  void add(std::string name, std::function<at::Tensor()> gather) {
    rest_.push_back({std::move(name), std::move(gather)});
  }
  bool empty() const { return rest_.empty(); }

  /// The next tensor, which must have this name. *Collective*.
  at::Tensor get(const std::string& name);
  /// Drops all remaining tensors. *Collective*.
  void drop_rest();
  /// Calls `action`, which calls get(). If it throws, drops the remaining tensors. *Collective*: ranks that
  /// need no tensors call drop_rest() instead.
  template <class Action>
  void during(const Action& action) {
    try {
      action();
    } catch (...) {
      drop_rest();
      throw;
    }
  }

 private:
  struct Entry {
    std::string name;
    std::function<at::Tensor()> gather;
  };
  std::deque<Entry> rest_;
};

/// For a model that is written as one file, whatever its size.
inline constexpr std::uint64_t kOneFile = ~std::uint64_t{0};

/// Adds each tensor of a model once, in the order of files of at most `max_shard_bytes`. *Local*.
void queue_model(GatheredTensors& gathered, const ShardedModels& models,
                 const std::vector<NamedTensor>& state, std::uint64_t max_shard_bytes = kMaxShardBytes);

/// Adds the state of an optimizer on these models in the order of its file. Returns its form: sharded tensors
/// are meta tensors. *Local*.
OptimizerState queue_optimizer_state(GatheredTensors& gathered, const ShardedModels& models,
                                     const torch::optim::Optimizer& optimizer,
                                     const std::vector<NamedTensor>& names);

/// Like lockstep::load_consolidated, for tensors that rank 0 reads one at a time. *Collective*.
void load_consolidated(const std::vector<const FullyShardedDataParallelBase*>& models,
                       torch::optim::Optimizer& optimizer, const std::vector<NamedTensor>& names,
                       const TensorSource& tensors, const std::string& options, const ProcessGroup& group,
                       const std::string& where);

/// The file of a model, compared with the model. Without sharded tensors it is read immediately, so that an
/// unreadable file changes nothing. *Local*. Throws like read_model().
TensorSource open_state(const ShardedModels& models, const std::filesystem::path& path,
                        const std::vector<NamedTensor>& state);

/// Gives all ranks the values that rank `root` finds in `content` for `state`; of a sharded tensor, each rank
/// gets its shard. A rank holds one full tensor at a time. *Collective*. If that rank cannot read a tensor,
/// all ranks throw.
void scatter_whole(const ShardedModels& models, const ProcessGroup& group, const TensorSource& content,
                   const std::vector<NamedTensor>& state, int root = 0);

}  // namespace lockstep::train
