#include <fmt/core.h>

#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/train/elastic.hpp"
#include "train/training_scope.hpp"

namespace lockstep {

using train::TrainingScope;

ElasticState::ElasticState(const World& world, const ProcessGroup& group)
    : accelerator_(world, group), is_plain_loop_(true) {
  TrainingScope::begin_plain_loop(accelerator_);
}

ElasticState::ElasticState(const Accelerator& accelerator)
    : accelerator_(accelerator), is_plain_loop_(false) {}

ElasticState::~ElasticState() = default;

void ElasticState::demand_plain_loop(const char* what) const {
  if (is_plain_loop_) return;
  throw UsageError(
      fmt::format("ElasticState: add() of {}: the state was made from an Accelerator: prepare it with that, "
                  "accelerator.prepare(), before run_elastic()",
                  what));
}

void ElasticState::add_model(ModelContents contents, WrappedModel model, std::shared_ptr<void> owner) {
  demand_plain_loop("a model");
  TrainingScope::add_model(accelerator_, std::move(contents), model, std::move(owner));
}

void ElasticState::add(torch::optim::Optimizer& optimizer) {
  demand_plain_loop("an optimizer");
  marks_.push_back(TrainingScope::add_optimizer(accelerator_, optimizer));
}

void ElasticState::add(optim::Scheduler& scheduler) {
  demand_plain_loop("a scheduler");
  TrainingScope::prepared_of(accelerator_).add_scheduler(scheduler);
}

void ElasticState::add(const DataLoader& loader) {
  demand_plain_loop("a loader");
  TrainingScope::prepared_of(accelerator_).add_loader(loader.position_handle());
}

void ElasticState::add(const std::string& name, Checkpointable& object) {
  accelerator_.register_for_checkpointing(name, object);
}

void ElasticState::resume_at(std::uint64_t step) {
  step_ = step;
  TrainingScope::set_loaded_step(accelerator_, step);
}

void ElasticState::commit() {
  if (!commit_) throw UsageError("ElasticState: commit() belongs into the body of run_elastic()");
  commit_();
}

}  // namespace lockstep
