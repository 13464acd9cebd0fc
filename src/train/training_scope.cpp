#include "train/training_scope.hpp"

#include <nlohmann/json.hpp>
#include <utility>

#include "checkpoint/manifest.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"
#include "train/accelerator_state.hpp"
#include "train/elastic/step_seed.hpp"

namespace lockstep::train {
namespace {

/// The manifest's description of a checkpoint whose files are not read.
CheckpointInfo info_of(const std::filesystem::path& checkpoint) {
  const auto folder = checkpoint.has_parent_path() ? checkpoint.parent_path() : std::filesystem::path(".");
  for (const auto& each : list_checkpoints(folder))
    if (each.path.filename() == checkpoint.filename()) return each.info;
  return {};
}

}  // namespace

TrainingScope::TrainingScope(const Accelerator& accelerator)
    : accelerator_(accelerator), owner_(accelerator_.state_->prepared.new_owner()) {}

PreparedObjects& TrainingScope::prepared_of(const Accelerator& accelerator) {
  return accelerator.state_->prepared;
}

AccumulationWindow& TrainingScope::window_of(const Accelerator& accelerator) {
  return *accelerator.gradients();
}

std::uint64_t TrainingScope::loaded_step(const Accelerator& accelerator) {
  return accelerator.state_->loaded_step;
}

void TrainingScope::set_loaded_step(const Accelerator& accelerator, std::uint64_t step) {
  accelerator.state_->loaded_step = step;
}

void TrainingScope::begin_plain_loop(const Accelerator& accelerator) {
  accelerator.state_->is_plain_loop = true;
}

bool TrainingScope::is_plain_loop(const Accelerator& accelerator) {
  return accelerator.state_->is_plain_loop;
}

void TrainingScope::add_model(Accelerator& accelerator, ModelContents contents, WrappedModel model,
                              std::shared_ptr<void> owner) {
  accelerator.add_model(std::move(contents), model, std::move(owner));
}

std::shared_ptr<const void> TrainingScope::add_optimizer(Accelerator& accelerator,
                                                         torch::optim::Optimizer& optimizer) {
  return accelerator.add_optimizer(optimizer);
}

std::uint64_t TrainingScope::seed_of(const Accelerator& accelerator) {
  const std::uint64_t seed = seed_of_generator();
  const auto& before = accelerator.state_->seed_before_load;
  return before && seed == accelerator.state_->loaded_seed ? *before : seed;
}

void TrainingScope::on_commit(const Accelerator& accelerator, std::function<void()> commit) {
  accelerator.state_->commit_step = std::move(commit);
}

void TrainingScope::resume_at(const Accelerator& accelerator, std::uint64_t step) {
  Accelerator handle = accelerator;
  handle.trackers_resume_at(static_cast<std::int64_t>(step));
  process_heartbeat().resumed_at(step);
}

void TrainingScope::commit(const Accelerator& accelerator) {
  if (const auto& commit = accelerator.state_->commit_step) commit();
}

void TrainingScope::drop_tracked_after(const Accelerator& accelerator, std::int64_t step) {
  Accelerator handle = accelerator;
  handle.trackers_resume_at(step);
}

void TrainingScope::add_elastic_part(const Accelerator& accelerator, ElasticPart& part) {
  accelerator.state_->elastic_parts.push_back(&part);
}

void TrainingScope::remove_elastic_part(const Accelerator& accelerator, const ElasticPart& part) {
  std::erase(accelerator.state_->elastic_parts, &part);
}

const std::vector<ElasticPart*>& TrainingScope::elastic_parts(const Accelerator& accelerator) {
  return accelerator.state_->elastic_parts;
}

TrainingScope::~TrainingScope() { forget(); }

void TrainingScope::forget() { accelerator_.state_->prepared.forget(owner_); }

void TrainingScope::replace_scheduler(const optim::Scheduler& before, optim::Scheduler& scheduler) {
  accelerator_.state_->prepared.replace_scheduler(before, scheduler);
}

void TrainingScope::set_accumulation(std::int64_t steps, std::int64_t global_batch_size) {
  if (steps > 1) accelerator_.gradients()->set_steps(steps);
  if (global_batch_size > 0) accelerator_.gradients()->set_global_batch_size(global_batch_size);
}

TrainingScope::Entered::Entered(TrainingScope& scope)
    : accelerator_(scope.accelerator_),
      before_(accelerator_.state_->prepared.set_owner(scope.owner_)),
      gradients_(accelerator_.gradients()->mark()) {}

TrainingScope::Entered::~Entered() {
  accelerator_.gradients()->return_to(gradients_);
  accelerator_.state_->prepared.set_owner(before_);
}

AccumulationWindow& TrainingScope::window() const { return *accelerator_.gradients(); }

std::uint64_t TrainingScope::loads() const { return accelerator_.state_->loads; }

bool TrainingScope::load_models(const std::filesystem::path& path) const {
  ModelsPart models(accelerator_.state_->prepared.models_of(owner_));
  if (models.models().empty()) return false;
  nlohmann::json info;
  accelerator_.on_main_process([&] { info = manifest::info_to_json(info_of(path)); });
  const Checkpoint checkpoint{
      .path = path, .info = manifest::info_from_json(accelerator_.process_group().broadcast_object(info))};
  models.prepare_reading(accelerator_, checkpoint);
  accelerator_.on_main_process([&] { models.read_models(checkpoint); });
  models.apply(accelerator_, checkpoint.info);
  return true;
}

}  // namespace lockstep::train
