#include <torch/optim/adagrad.h>
#include <torch/optim/rmsprop.h>

#include <algorithm>
#include <set>

#include "lockstep/core/error.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/sgd.hpp"
#include "train/rules/schedule_kwargs.hpp"
#include "train/trainer/trainer_impl.hpp"

namespace lockstep {
namespace {

/// The trained parameters, with and without weight decay, each once.
struct TrainedParameters {
  std::vector<at::Tensor> with_decay;
  std::vector<at::Tensor> without_decay;
};

TrainedParameters parameters_of(Trainer& trainer) {
  TrainedParameters result;
  std::set<const void*> seen;
  for (const auto& entry : trainer.model().parameters()) {
    if (!entry.tensor.requires_grad() || !seen.insert(entry.tensor.unsafeGetTensorImpl()).second) continue;
    (trainer.takes_weight_decay(entry.name) ? result.with_decay : result.without_decay)
        .push_back(entry.tensor);
  }
  if (result.with_decay.empty() && result.without_decay.empty())
    throw UsageError("Trainer: the model has no parameter that is trained");
  return result;
}

/// Groups numbered like torch.optim's: the group with decay first, an empty group left out.
template <class Optimizer, class Options>
std::unique_ptr<torch::optim::Optimizer> make_ours(const TrainedParameters& parameters,
                                                   const Options& options) {
  std::vector<optim::ParameterGroup<Options>> groups;
  if (!parameters.with_decay.empty()) groups.push_back({parameters.with_decay, options});
  Options plain = options;
  plain.weight_decay = 0;
  if (!parameters.without_decay.empty()) groups.push_back({parameters.without_decay, plain});
  return std::make_unique<Optimizer>(std::move(groups));
}

template <class Optimizer, class Options>
std::unique_ptr<torch::optim::Optimizer> make_torchs(const TrainedParameters& parameters,
                                                     const Options& options) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  if (!parameters.with_decay.empty())
    groups.emplace_back(parameters.with_decay, std::make_unique<Options>(options));
  Options plain = options;
  plain.weight_decay(0);
  if (!parameters.without_decay.empty())
    groups.emplace_back(parameters.without_decay, std::make_unique<Options>(plain));
  return std::make_unique<Optimizer>(std::move(groups), options);
}

}  // namespace

bool Trainer::takes_weight_decay(const std::string& name) {
  const auto norms = impl_->parts.model->layer_norms();
  const bool in_norm =
      std::any_of(norms.begin(), norms.end(), [&](const auto& norm) { return name.starts_with(norm); });
  return optim::takes_weight_decay(name) && !in_norm;
}

std::unique_ptr<torch::optim::Optimizer> Trainer::create_optimizer() {
  const TrainingArguments& a = impl_->args;
  const auto parameters = parameters_of(*this);
  const std::tuple betas{a.adam_beta1, a.adam_beta2};
  if (a.optim == "sgd") {
    return make_ours<optim::SGD>(
        parameters,
        optim::SgdOptions{.lr = a.learning_rate, .momentum = a.sgd_momentum, .weight_decay = a.weight_decay});
  }
  if (a.optim == "adam") {
    return make_ours<optim::Adam>(
        parameters,
        optim::AdamOptions{
            .lr = a.learning_rate, .betas = betas, .eps = a.adam_epsilon, .weight_decay = a.weight_decay});
  }
  if (a.optim == "adagrad") {
    return make_torchs<torch::optim::Adagrad>(
        parameters, torch::optim::AdagradOptions(a.learning_rate).weight_decay(a.weight_decay));
  }
  if (a.optim == "rmsprop") {
    return make_torchs<torch::optim::RMSprop>(
        parameters, torch::optim::RMSpropOptions(a.learning_rate).weight_decay(a.weight_decay));
  }
  return make_ours<optim::AdamW>(
      parameters,
      optim::AdamWOptions{
          .lr = a.learning_rate, .betas = betas, .eps = a.adam_epsilon, .weight_decay = a.weight_decay});
}

std::unique_ptr<optim::Scheduler> Trainer::create_scheduler(torch::optim::Optimizer& optimizer,
                                                            std::int64_t training_steps,
                                                            std::int64_t warmup_steps) {
  if (impl_->args.lr_scheduler_type == "reduce_lr_on_plateau")
    return std::make_unique<optim::ReduceLrOnPlateau>(optimizer, plateau_options(impl_->args));
  auto options = schedule_options(impl_->args);
  options.num_training_steps = training_steps;
  options.num_warmup_steps = warmup_steps;
  return std::make_unique<optim::LrScheduler>(optimizer, options);
}

}  // namespace lockstep
