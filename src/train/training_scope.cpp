#include "train/training_scope.hpp"

#include "train/accelerator_state.hpp"

namespace lockstep::train {

TrainingScope::TrainingScope(const Accelerator& accelerator)
    : accelerator_(accelerator), owner_(accelerator_.state_->prepared.new_owner()) {}

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

bool TrainingScope::load_models(const std::filesystem::path& checkpoint) const {
  const auto models = accelerator_.state_->prepared.models_of(owner_);
  const auto sharded = accelerator_.state_->prepared.sharded_models();
  std::vector<TensorSource> contents(models.size());
  accelerator_.on_main_process([&] {
    for (std::size_t i = 0; i < models.size(); ++i) {
      const auto& [number, model] = models[i];
      contents[i] = open_state(sharded, checkpoint / checkpoint_model_file(number), model.tensors());
    }
  });
  for (std::size_t i = 0; i < models.size(); ++i)
    scatter_whole(sharded, accelerator_.process_group(), contents[i], models[i].second.tensors());
  return !models.empty();
}

}  // namespace lockstep::train
