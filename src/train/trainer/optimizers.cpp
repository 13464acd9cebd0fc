#include <torch/optim/adagrad.h>
#include <torch/optim/rmsprop.h>

#include <algorithm>
#include <set>

#include "lockstep/core/error.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/sgd.hpp"
#include "trainer_impl.hpp"

namespace lockstep {
namespace {

/// The parameters that are trained, with and without weight decay, each once.
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

/// As torch.optim counts them: the group with decay comes first, and an empty one is left out.
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

/// The keys of lr_scheduler_kwargs: those of ScheduleOptions, and transformers' rates that are no shares.
struct ScheduleKwargs : optim::ScheduleOptions {
  std::optional<double> min_lr = {};
  std::optional<double> lr_end = {};
};

const OptionTable<ScheduleKwargs>& schedule_table() {
  using S = optim::ScheduleOptions;
  static const auto table = OptionTable<S>("lr_scheduler_kwargs", "Numbers of a schedule.")
                                .add("num-cycles", &S::num_cycles, "Waves.")
                                .add("min-lr-rate", &S::min_lr_rate, "Lowest share.")
                                .add("warmup-lr-rate", &S::warmup_lr_rate, "First share.")
                                .add("end-lr-rate", &S::end_lr_rate, "Last share.")
                                .add("power", &S::power, "Power.")
                                .add("timescale", &S::timescale, "Steps.")
                                .add("num-decay-steps", &S::decay_steps, "Steps of decay.")
                                .add("num-stable-steps", &S::stable_steps, "Steps of full rate.")
                                .add("warmup-type", &S::warmup_type, "Shape of the growth.")
                                .add("decay-type", &S::decay_type, "Shape of the decay.");
  static const auto all = OptionTable<ScheduleKwargs>("lr_scheduler_kwargs", "Numbers of a schedule.")
                              .include(table)
                              .add("min-lr", &ScheduleKwargs::min_lr, "Lowest rate.")
                              .add("lr-end", &ScheduleKwargs::lr_end, "Last rate.");
  return all;
}

optim::ScheduleOptions schedule_options(const TrainingArguments& args) {
  ScheduleKwargs base;
  // transformers' polynomial schedule ends at a rate, not at a share.
  if (args.learning_rate > 0) base.end_lr_rate = 1e-7 / args.learning_rate;
  ScheduleKwargs kwargs = schedule_table().from_json_text(args.lr_scheduler_kwargs, base);
  if (kwargs.min_lr && args.learning_rate > 0) kwargs.min_lr_rate = *kwargs.min_lr / args.learning_rate;
  if (kwargs.lr_end && args.learning_rate > 0) kwargs.end_lr_rate = *kwargs.lr_end / args.learning_rate;
  kwargs.name = args.lr_scheduler_type;
  return kwargs;
}

optim::PlateauOptions plateau_options(const TrainingArguments& args) {
  using P = optim::PlateauOptions;
  static const auto table = OptionTable<P>("lr_scheduler_kwargs", "Numbers of reduce_lr_on_plateau.")
                                .add("mode", &P::mode, "min or max.")
                                .add("factor", &P::factor, "Factor.")
                                .add("patience", &P::patience, "Evaluations.")
                                .add("threshold", &P::threshold, "Least gain.")
                                .add("threshold-mode", &P::threshold_mode, "rel or abs.")
                                .add("cooldown", &P::cooldown, "Evaluations.")
                                .add("min-lr", &P::min_lr, "Lowest rate.")
                                .add("eps", &P::eps, "Least change.");
  P base;
  base.mode = greater_metric_is_better(args) ? "max" : "min";
  return table.from_json_text(args.lr_scheduler_kwargs, base);
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
  options.training_steps = training_steps;
  options.warmup_steps = warmup_steps;
  return std::make_unique<optim::LrScheduler>(optimizer, options);
}

}  // namespace lockstep
