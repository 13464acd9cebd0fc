#include "train/prepared_objects.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <utility>

#include "lockstep/core/error.hpp"
#include "train/state/buckets_part.hpp"
#include "train/state/loaders_part.hpp"
#include "train/state/models_part.hpp"
#include "train/state/objects_part.hpp"
#include "train/state/optimizers_part.hpp"
#include "train/state/random_states_part.hpp"
#include "train/state/scaler_part.hpp"
#include "train/state/schedulers_part.hpp"

namespace lockstep::train {
namespace {

bool makes_a_file_name(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char letter) {
    return std::isalnum(letter) != 0 || letter == '_' || letter == '-' || letter == '.';
  });
}

/// `what`: the object, and what its mark is tied to.
void check_alive(const std::weak_ptr<const void>& alive, const std::string& what) {
  if (!alive.expired()) return;
  throw UsageError(
      fmt::format("checkpoints: {} was destroyed, so its state can be neither saved nor loaded. "
                  "Keep it alive while you save or load checkpoints, or call free_memory() before you "
                  "prepare the next training",
                  what));
}

}  // namespace

void PreparedObjects::add_object(const std::string& name, Checkpointable& object) {
  const bool taken = std::any_of(objects_.begin(), objects_.end(), [&](const auto& entry) {
    return entry.object.first == name && !entry.alive.expired() && sees(entry.owner);
  });
  if (taken || !makes_a_file_name(name)) {
    throw UsageError("register_for_checkpointing: the name '" + name + "' " +
                     (taken ? "is taken" : "cannot be part of a file's name") +
                     ". Use another one, of letters, digits, '_', '-' and '.'.");
  }
  add(objects_, Registered(name, &object), object.lifetime().watch());
}

void PreparedObjects::replace_scheduler(const optim::Scheduler& before, optim::Scheduler& scheduler) {
  for (auto& entry : schedulers_) {
    if (entry.object != &before) continue;
    entry.object = &scheduler;
    entry.alive = scheduler.lifetime().watch();
  }
}

void PreparedObjects::forget(Owner owner) {
  const auto drop = [owner](auto& entries) {
    std::erase_if(entries, [owner](const auto& entry) { return entry.owner == owner; });
  };
  drop(models_);
  drop(optimizers_);
  drop(schedulers_);
  drop(loaders_);
  drop(objects_);
}

void PreparedObjects::clear() {
  models_.clear();
  optimizers_.clear();
  schedulers_.clear();
  loaders_.clear();
  objects_.clear();
}

void PreparedObjects::check_visible_alive() const {
  std::size_t number = 0;
  for (const auto& entry : optimizers_) {
    if (!sees(entry.owner)) continue;
    check_alive(
        entry.alive,
        fmt::format("optimizer #{} (of a class of the program: what prepare() returned for it)", ++number));
  }
  number = 0;
  for (const auto& entry : schedulers_) {
    if (sees(entry.owner)) check_alive(entry.alive, fmt::format("the prepared scheduler #{}", ++number));
  }
  for (const auto& entry : objects_) {
    if (sees(entry.owner)) check_alive(entry.alive, "the registered object '" + entry.object.first + "'");
  }
}

TrainingState PreparedObjects::state(LossScaling* scaling) const {
  check_visible_alive();
  auto models = std::make_unique<ModelsPart>(visible(models_));
  auto buckets = std::make_unique<BucketsPart>(*models);
  auto optimizers = std::make_unique<OptimizersPart>(*models, visible(optimizers_));
  TrainingState::Parts parts;
  parts.push_back(std::make_unique<LoadersPart>(visible(loaders_), begins_epochs_anew_));
  parts.push_back(std::move(models));
  parts.push_back(std::move(buckets));
  parts.push_back(std::move(optimizers));
  parts.push_back(std::make_unique<SchedulersPart>(visible(schedulers_)));
  parts.push_back(std::make_unique<ScalerPart>(scaling));
  parts.push_back(std::make_unique<ObjectsPart>(visible(objects_)));
  parts.push_back(std::make_unique<RandomStatesPart>());
  return TrainingState(std::move(parts));
}

ShardedModels PreparedObjects::sharded_models() const {
  return pick_sharded(models_, [](const auto& entry) { return entry.object.wrapped; });
}

std::vector<DataLoader::Position> PreparedObjects::loaders() const {
  std::vector<DataLoader::Position> result;
  for (const auto& entry : loaders_) result.push_back(entry.object);
  return result;
}

std::vector<PreparedModel> PreparedObjects::models() const {
  std::vector<PreparedModel> result;
  for (const auto& entry : models_) result.push_back(entry.object);
  return result;
}

std::vector<torch::optim::Optimizer*> PreparedObjects::optimizers() const {
  check_visible_alive();
  return visible(optimizers_);
}

std::vector<optim::Scheduler*> PreparedObjects::schedulers() const {
  check_visible_alive();
  return visible(schedulers_);
}

std::vector<std::pair<std::size_t, PreparedModel>> PreparedObjects::models_of(Owner owner) const {
  std::vector<std::pair<std::size_t, PreparedModel>> result;
  std::size_t number = 0;
  for (const auto& entry : models_) {
    if (entry.owner != kProgram && entry.owner != owner) continue;
    if (entry.owner == owner) result.emplace_back(number, entry.object);
    ++number;
  }
  return result;
}

}  // namespace lockstep::train
