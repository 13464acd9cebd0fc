#include "train/rules/metric_names.hpp"
#include "train/trainer/evaluation_run.hpp"
#include "train/trainer/trainer_impl.hpp"

namespace lockstep {

EvaluationInterrupted::EvaluationInterrupted() : Error("the evaluation was interrupted by a stop request") {}

LogValues Trainer::evaluate(std::shared_ptr<const Dataset> dataset, const std::string& prefix) {
  if (dataset || impl_->parts.eval_datasets.empty())
    return impl_->evaluate(*this, impl_->eval_dataset(dataset), prefix);
  LogValues all;
  for (const auto& [name, one] : impl_->parts.eval_datasets) {
    const LogValues metrics = impl_->evaluate(*this, one, prefix + "_" + name);
    all.insert(all.end(), metrics.begin(), metrics.end());
  }
  return all;
}

std::vector<std::string> Trainer::metric_names(const std::string& prefix) const {
  std::vector<std::string> names{"loss", "runtime", "samples_per_second", "steps_per_second"};
  if (impl_->parts.compute_metrics && !impl_->args.prediction_loss_only) {
    const auto own = impl_->parts.compute_metrics->names();
    if (own.empty()) return {};
    names.insert(names.begin() + 1, own.begin(), own.end());
  }
  for (auto& name : names) name = train::with_prefix(prefix, name);
  return names;
}

PredictionOutput Trainer::predict(std::shared_ptr<const Dataset> dataset, const std::string& prefix) {
  EvaluationRun run(*this, *impl_, prefix);
  run.run(get_test_dataloader(impl_->eval_dataset(dataset)), /*keep=*/true);
  PredictionOutput output{.predictions = run.predictions(), .metrics = run.metrics()};
  impl_->call(*this, &TrainerCallback::on_predict, output.metrics);
  return output;
}

EvaluationStep Trainer::prediction_step(const Batch& batch, bool /*loss_only*/) {
  EvaluationStep step;
  impl_->set_label_smoothing();
  step.outputs = impl_->parts.model->evaluate(batch);
  if (impl_->has_labels(batch)) step.loss = compute_loss(step.outputs, batch);
  if (impl_->parts.preprocess_logits_for_metrics)
    step.outputs = impl_->parts.preprocess_logits_for_metrics(step.outputs, batch);
  return step;
}

}  // namespace lockstep
