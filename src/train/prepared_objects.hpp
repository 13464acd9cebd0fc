#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/data_loader.hpp"
#include "lockstep/optim/lr_scheduler.hpp"
#include "lockstep/train/checkpointing.hpp"
#include "train/loss_scaling.hpp"
#include "train/state/models_part.hpp"
#include "train/state/training_state.hpp"

namespace lockstep::train {

/// Who has prepared an object: the program, or one of the trainings that share its Accelerator.
using Owner = std::uint64_t;
inline constexpr Owner kProgram = 0;

/// Everything that was prepared with an Accelerator or registered for its checkpoints, in that order.
///
/// Several trainings may share one Accelerator: the folds of a cross-validation, a teacher beside a student.
/// What Trainer::train() prepares belongs to that Trainer, and is forgotten with it. While a training runs,
/// checkpoints contain its own objects and those of the program, so that they are the same whatever was
/// trained before, and can be loaded by a process that trains nothing else. Otherwise they contain all.
///
/// Objects of the program are only pointed to. Each has a mark that expires with it, and state() checks the
/// marks before anything is read: an object that is gone is an error, never a dangling pointer.
class PreparedObjects {
 public:
  void add_model(PreparedModel model) { add(models_, std::move(model)); }
  void add_loader(DataLoader::Position position) { add(loaders_, std::move(position)); }
  /// `alive` expires when the optimizer may no longer be used.
  void add_optimizer(torch::optim::Optimizer& optimizer, std::weak_ptr<const void> alive) {
    add(optimizers_, &optimizer, std::move(alive));
  }
  void add_scheduler(optim::Scheduler& scheduler) {
    add(schedulers_, &scheduler, scheduler.lifetime().watch());
  }
  /// Throws UsageError if the name cannot be a file name or is taken.
  void add_object(const std::string& name, Checkpointable& object);
  /// `scheduler` takes the place of `before` in checkpoints, if that was prepared.
  void replace_scheduler(const optim::Scheduler& before, optim::Scheduler& scheduler);

  /// A state that is loaded from now on may be of other data or another order in the middle of an epoch,
  /// which then begins anew.
  void begin_epochs_anew(bool on) noexcept { begins_epochs_anew_ = on; }

  Owner new_owner() noexcept { return ++owners_; }
  /// From now on objects belong to `owner`; returns the owner before.
  Owner set_owner(Owner owner) noexcept { return std::exchange(owner_, owner); }
  void forget(Owner owner);
  void clear();

  /// What a checkpoint contains now. Throws UsageError if an object was destroyed.
  TrainingState state(LossScaling* scaling) const;
  /// All of them, whoever prepared them.
  ShardedModels sharded_models() const;
  std::vector<DataLoader::Position> loaders() const;
  std::vector<PreparedModel> models() const;
  /// Those that a checkpoint contains now. Throws UsageError if an object was destroyed.
  std::vector<torch::optim::Optimizer*> optimizers() const;
  std::vector<optim::Scheduler*> schedulers() const;
  /// The models of `owner` with their numbers in a checkpoint that is written while it is the current one.
  std::vector<std::pair<std::size_t, PreparedModel>> models_of(Owner owner) const;

 private:
  template <class Object>
  struct Entry {
    Object object;
    Owner owner;
    std::weak_ptr<const void> alive;
  };
  template <class Object>
  using Entries = std::vector<Entry<Object>>;
  using Registered = std::pair<std::string, Checkpointable*>;

  template <class Object>
  void add(Entries<Object>& entries, Object object, std::weak_ptr<const void> alive = {}) {
    entries.push_back({std::move(object), owner_, std::move(alive)});
  }
  /// Those that a checkpoint contains now.
  template <class Object>
  std::vector<Object> visible(const Entries<Object>& entries) const {
    std::vector<Object> result;
    for (const auto& entry : entries) {
      if (sees(entry.owner)) result.push_back(entry.object);
    }
    return result;
  }
  /// Throws UsageError if one of those was destroyed.
  void check_visible_alive() const;
  bool sees(Owner owner) const noexcept { return owner_ == kProgram || owner == kProgram || owner == owner_; }

  Entries<PreparedModel> models_;
  Entries<torch::optim::Optimizer*> optimizers_;
  Entries<optim::Scheduler*> schedulers_;
  Entries<DataLoader::Position> loaders_;
  Entries<Registered> objects_;
  Owner owners_ = kProgram;
  bool begins_epochs_anew_ = false;
  Owner owner_ = kProgram;
};

}  // namespace lockstep::train
