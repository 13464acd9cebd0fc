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

/// A loader's position as a checkpoint keeps it, and back. Throws what nlohmann::json throws for a document
/// of another form.
nlohmann::json to_json(const DataLoaderState& state);
DataLoaderState loader_state_from(const nlohmann::json& document);

/// A JSON document in a file of its own, written as a whole.
FileDigest write_json(const std::filesystem::path& path, const nlohmann::json& document);
/// Throws DataError for a file that cannot be read or is no JSON.
nlohmann::json read_json(const std::filesystem::path& path);

/// A model that was prepared.
struct PreparedModel {
  std::function<std::vector<NamedTensor>()> tensors;
  WrappedModel wrapped;
  std::shared_ptr<void> owner;
};

/// Everything that an Accelerator has prepared or registered, and that a checkpoint therefore holds.
class TrainingState {
 public:
  void add_model(PreparedModel model) { models_.push_back(std::move(model)); }
  void add_optimizer(torch::optim::Optimizer& optimizer) { optimizers_.push_back(&optimizer); }
  void add_scheduler(optim::Scheduler& scheduler) { schedulers_.push_back(&scheduler); }
  /// The loss scale of float16, where there is one; of all models that are prepared.
  void set_loss_scaling(LossScaling* scaling) { scaling_ = scaling; }
  void add_loader(DataLoader::Position position) { loaders_.push_back(std::move(position)); }
  const std::vector<DataLoader::Position>& loaders() const noexcept { return loaders_; }
  /// Of the models that are prepared, those that are fully sharded.
  ShardedModels sharded_models() const;
  /// Throws UsageError for a name that makes no file name or is taken.
  void add_object(const std::string& name, Checkpointable& object);
  void clear();

  /// Writes everything as a checkpoint. *Collective*: see Accelerator::save_state.
  void save(const Accelerator& accelerator, const std::filesystem::path& path, CheckpointInfo info,
            const SaveStateOptions& options, CheckpointWriter& writer) const;

  /// Reads what rank 0 finds at the checkpoint's path. *Collective*: see Accelerator::load_state.
  void load(const Accelerator& accelerator, const Checkpoint& checkpoint) const;

 private:
  /// What is written, or was read and compared, and nobody has taken it over yet.
  struct Content;
  using Objects = std::vector<std::pair<std::string, Checkpointable*>>;

  std::vector<NamedTensor> parameter_names() const;
  /// `writes`: this rank needs the whole state of what is divided over ranks. `at_once`: now, not while it is
  /// written.
  Content gather(const ProcessGroup& group, bool writes, bool at_once) const;
  /// What only rank 0 needs to write.
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
