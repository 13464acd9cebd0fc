#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/checkpoint_folder.hpp"
#include "lockstep/checkpoint/optimizer_state.hpp"
#include "lockstep/data/data_loader.hpp"
#include "lockstep/train/accelerator.hpp"
#include "lockstep/train/checkpointable.hpp"
#include "random_state.hpp"

namespace lockstep::train {

/// Everything that an Accelerator has prepared or registered, and that a checkpoint therefore holds.
class TrainingState {
 public:
  using TensorsOf = std::function<std::vector<NamedTensor>()>;

  void add_model(TensorsOf tensors) { models_.push_back(std::move(tensors)); }
  void add_optimizer(torch::optim::Optimizer& optimizer) { optimizers_.push_back(&optimizer); }
  void add_loader(DataLoader::Position position) { loaders_.push_back(std::move(position)); }
  /// Throws UsageError for a name that makes no file name or is taken.
  void add_object(const std::string& name, Checkpointable& object);
  void clear() { *this = {}; }

  /// Writes everything as a checkpoint. *Collective*: see Accelerator::save_state.
  void save(const Accelerator& accelerator, const std::filesystem::path& path, CheckpointInfo info) const;

  /// Reads what rank 0 finds at the checkpoint's path. *Collective*: see Accelerator::load_state.
  void load(const Accelerator& accelerator, const Checkpoint& checkpoint) const;

 private:
  /// What rank 0 has read and compared, and nobody has taken over yet.
  struct Content;
  using Objects = std::vector<std::pair<std::string, Checkpointable*>>;

  std::vector<NamedTensor> parameter_names() const;
  void write_files(const std::filesystem::path& folder, const std::vector<RandomState>& random,
                   const std::vector<SafeTensors>& objects) const;
  Content read_files(const Checkpoint& checkpoint) const;
  void take_positions(const Accelerator& accelerator, const Content& content) const;
  void take_models(const Accelerator& accelerator, const Content& content) const;
  void take_optimizers(const Accelerator& accelerator, const Content& content) const;
  void take_objects(const Accelerator& accelerator, const Content& content) const;

  std::vector<TensorsOf> models_;
  std::vector<torch::optim::Optimizer*> optimizers_;
  std::vector<DataLoader::Position> loaders_;
  Objects objects_;
};

}  // namespace lockstep::train
