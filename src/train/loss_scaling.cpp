#include "train/loss_scaling.hpp"

#include <algorithm>

namespace lockstep::train {
namespace {

bool has_any(torch::optim::Optimizer& optimizer, const std::set<const void*>& parameters) {
  const auto& groups = optimizer.param_groups();
  return std::any_of(groups.begin(), groups.end(), [&](const torch::optim::OptimizerParamGroup& group) {
    return std::any_of(group.params().begin(), group.params().end(), [&](const at::Tensor& parameter) {
      return parameters.contains(parameter.unsafeGetTensorImpl());
    });
  });
}

}  // namespace

void LossScaling::keep_first(std::size_t count) {
  if (count >= optimizers_.size()) return;
  for (auto entry = optimizers_.begin() + static_cast<std::ptrdiff_t>(count); entry != optimizers_.end();
       ++entry) {
    scaler_.forget(*entry->optimizer);
    done_.erase(entry->optimizer);
    outcomes_.erase(entry->optimizer);
  }
  optimizers_.resize(count);
}

std::vector<torch::optim::Optimizer*> LossScaling::living() const {
  std::vector<torch::optim::Optimizer*> result;
  for (const auto& entry : optimizers_) {
    if (!entry.alive || !entry.alive->expired()) result.push_back(entry.optimizer);
  }
  return result;
}

at::Tensor LossScaling::scale(const at::Tensor& loss) {
  for (const auto* optimizer : living()) scaler_.watch(*optimizer);
  // An overflow lowers the scale even if the program leaves out the step because of it.
  if (scaler_.drop_left_out_steps() && done_.empty()) scaler_.update();
  update();
  return scaler_.scale(loss);
}

void LossScaling::unscale(const std::vector<at::Tensor>& parameters) {
  std::set<const void*> wanted;
  for (const auto& parameter : parameters) wanted.insert(parameter.unsafeGetTensorImpl());
  for (auto* optimizer : living()) {
    if (has_any(*optimizer, wanted)) scaler_.unscale(*optimizer);
  }
}

void LossScaling::unscale_all() {
  for (auto* optimizer : living()) scaler_.unscale(*optimizer);
}

optim::StepOutcome LossScaling::step(torch::optim::Optimizer& optimizer, const at::Tensor& factor) {
  const optim::StepOutcome outcome = scaler_.step_by(optimizer, factor);
  outcomes_.insert_or_assign(&optimizer, outcome);
  done_.insert(&optimizer);
  const auto expected = living();
  const bool all =
      std::all_of(expected.begin(), expected.end(), [&](const auto* one) { return done_.contains(one); });
  if (all) update();
  return outcome;
}

bool LossScaling::skipped(const torch::optim::Optimizer& optimizer) const {
  const auto found = outcomes_.find(&optimizer);
  return found != outcomes_.end() && !found->second;
}

bool LossScaling::any_skipped() const {
  return std::any_of(outcomes_.begin(), outcomes_.end(), [](const auto& entry) { return !entry.second; });
}

double LossScaling::get_scale() {
  update();
  return scaler_.get_scale();
}

std::string LossScaling::state_dict() {
  update();
  return scaler_.state_dict();
}

void LossScaling::load_state_dict(const std::string& text) {
  scaler_.load_state_dict(text);
  done_.clear();
  outcomes_.clear();
}

void LossScaling::update() {
  if (done_.empty()) return;
  scaler_.update();
  done_.clear();
}

}  // namespace lockstep::train
