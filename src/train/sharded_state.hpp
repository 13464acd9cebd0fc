#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "../checkpoint/tensor_source.hpp"
#include "lockstep/checkpoint/optimizer_state.hpp"
#include "lockstep/comm/process_group.hpp"
#include "lockstep/parallel/fully_shard.hpp"
#include "lockstep/parallel/module_tensors.hpp"
#include "lockstep/train/model_files.hpp"

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

/// Whole tensors that are gathered one at a time, in an order that all ranks have in common: each of them
/// takes or drops every one. One thread at a time.
class GatheredTensors {
 public:
  void add(std::string name, std::function<at::Tensor()> gather) {
    rest_.push_back({std::move(name), std::move(gather)});
  }
  bool empty() const { return rest_.empty(); }

  /// The next one, which must have this name. *Collective*.
  at::Tensor get(const std::string& name);
  /// Drops all that are left. *Collective*.
  void drop_rest();
  /// Calls `action`, which gets tensors; those that it leaves because it throws are dropped. *Collective*,
  /// with drop_rest() on ranks that get none.
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

/// Adds the tensors of a model in the order in which files of at most `max_shard_bytes` have them, each once.
/// *Local*.
void queue_model(GatheredTensors& gathered, const ShardedModels& models,
                 const std::vector<NamedTensor>& state, std::uint64_t max_shard_bytes = kMaxShardBytes);

/// Adds the state of an optimizer on these models in the order in which its file has them, and returns its
/// form: meta tensors where they are divided. *Local*.
OptimizerState queue_optimizer_state(GatheredTensors& gathered, const ShardedModels& models,
                                     const torch::optim::Optimizer& optimizer,
                                     const std::vector<NamedTensor>& names);

/// As lockstep::load_consolidated, of tensors that rank 0 reads one at a time. *Collective*.
void load_consolidated(const ShardedModels& models, torch::optim::Optimizer& optimizer,
                       const std::vector<NamedTensor>& names, const TensorSource& tensors,
                       const std::string& options, const ProcessGroup& group, const std::string& where);

/// The file of a model, compared with it. What a whole model gets is read at once, so that a file that cannot
/// be read changes nothing. *Local*. Throws as read_model().
TensorSource open_state(const ShardedModels& models, const std::filesystem::path& path,
                        const std::vector<NamedTensor>& state);

/// Gives all ranks the values that rank 0 finds in `content` for `state`, each rank its part of what is
/// divided. A rank holds one whole tensor at a time. *Collective*. Where rank 0 cannot read one, all throw.
void scatter_whole(const ShardedModels& models, const ProcessGroup& group, const TensorSource& content,
                   const std::vector<NamedTensor>& state);

}  // namespace lockstep::train
