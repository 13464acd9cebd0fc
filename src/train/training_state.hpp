#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint_writer.hpp"
#include "lockstep/checkpoint/checkpoint_folder.hpp"
#include "lockstep/checkpoint/optimizer_state.hpp"
#include "lockstep/data/data_loader.hpp"
#include "lockstep/optim/lr_scheduler.hpp"
#include "lockstep/train/accelerator.hpp"
#include "lockstep/train/checkpointing.hpp"
#include "loss_scaling.hpp"
#include "random_state.hpp"
#include "sharded_state.hpp"

namespace lockstep::train {

/// Converts a loader's position to a checkpoint's JSON and back. Throws exceptions of nlohmann::json for a
/// document of another form.
nlohmann::json to_json(const DataLoaderState& state);
DataLoaderState loader_state_from(const nlohmann::json& document);

/// Writes a JSON document to a file, atomically.
FileDigest write_json(const std::filesystem::path& path, const nlohmann::json& document);

/// A prepared model.
struct PreparedModel {
  std::function<std::vector<NamedTensor>()> tensors;
  WrappedModel wrapped;
  std::shared_ptr<void> owner;
};

/// The name of the file of a checkpoint's `index`-th model.
std::string checkpoint_model_file(std::size_t index);

/// What a checkpoint contains: made of PreparedObjects for one call, because it only points to the objects.
class TrainingState {
 public:
  void add_model(PreparedModel model) { models_.push_back(std::move(model)); }
  void add_optimizer(torch::optim::Optimizer& optimizer) { optimizers_.push_back(&optimizer); }
  void add_scheduler(optim::Scheduler& scheduler) { schedulers_.push_back(&scheduler); }
  /// The loss scale of float16, for all prepared models; null if there is none.
  void set_loss_scaling(LossScaling* scaling) { scaling_ = scaling; }
  void add_loader(DataLoader::Position position) { loaders_.push_back(std::move(position)); }
  void add_object(const std::string& name, Checkpointable& object) { objects_.emplace_back(name, &object); }

  /// Writes everything as a checkpoint. *Collective*: see Accelerator::save_state.
  void save(const Accelerator& accelerator, const std::filesystem::path& path, CheckpointInfo info,
            const SaveStateOptions& options, CheckpointWriter& writer) const;

  /// Loads what rank 0 reads at the checkpoint's path. *Collective*: see Accelerator::load_state.
  void load(const Accelerator& accelerator, const Checkpoint& checkpoint) const;

 private:
  /// Content to write, or content that was read and compared but not applied yet.
  struct Content;
  using Objects = std::vector<std::pair<std::string, Checkpointable*>>;

  /// The fully sharded ones among the models.
  ShardedModels sharded_models() const;
  std::vector<NamedTensor> parameter_names() const;
  /// `writes`: this rank needs the full state of sharded tensors. `at_once`: gathers them now instead of
  /// while writing.
  Content gather(const ProcessGroup& group, bool writes, bool at_once) const;
  /// Adds what only the writing rank needs.
  void add_own(Content& content) const;
  std::vector<std::string> object_names() const;
  Content read_files(const Checkpoint& checkpoint) const;
  void take_positions(const Accelerator& accelerator, const Content& content) const;
  void take_models(const Accelerator& accelerator, const Content& content) const;
  void take_optimizers(const Accelerator& accelerator, const Content& content) const;
  void take_schedulers(const Accelerator& accelerator, const Content& content) const;
  void take_objects(const Accelerator& accelerator, const Content& content) const;

  std::vector<PreparedModel> models_;
  std::vector<torch::optim::Optimizer*> optimizers_;
  std::vector<optim::Scheduler*> schedulers_;
  LossScaling* scaling_ = nullptr;
  std::vector<DataLoader::Position> loaders_;
  Objects objects_;
};

}  // namespace lockstep::train
