#include "evaluation_run.hpp"

#include <ATen/ATen.h>
#include <torch/nn/functional/loss.h>

#include <algorithm>
#include <cmath>

#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

/// The type that evaluations compute in, where it is to be another than the model's. Not in the middle of a
/// training: the wrapped model's gradients belong to the parameters as they are.
std::optional<at::ScalarType> evaluation_type(const Trainer& trainer, bool in_training) {
  const TrainingArguments& args = trainer.args();
  if (in_training || !(args.bf16_full_eval || args.fp16_full_eval)) return std::nullopt;
  return args.bf16_full_eval ? at::kBFloat16 : at::kHalf;
}

/// The model has that type while this lives; afterwards its own values again.
class HalfWidth {
 public:
  HalfWidth(ModelAdapter& model, std::optional<at::ScalarType> type) {
    if (!type) return;
    for (const auto& list : {model.parameters(), model.buffers()}) {
      for (const auto& entry : list) before_.emplace_back(entry.tensor, entry.tensor.detach());
    }
    model.to(*type);
  }
  ~HalfWidth() {
    const at::NoGradGuard no_grad;
    for (auto& [tensor, value] : before_) tensor.set_data(value);
  }
  HalfWidth(const HalfWidth&) = delete;
  HalfWidth& operator=(const HalfWidth&) = delete;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> before_;
};

/// Evaluation mode while it lives.
class EvaluationMode {
 public:
  explicit EvaluationMode(ModelAdapter& model) : model_(model) { model_.train(false); }
  ~EvaluationMode() { model_.train(true); }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  ModelAdapter& model_;
};

Batch with_type(const Batch& batch, at::ScalarType type) {
  return map_tensors(
      batch, [&](const at::Tensor& tensor) { return tensor.is_floating_point() ? tensor.to(type) : tensor; });
}

Loss smoothed(const Batch& outputs, const Batch& batch, double smoothing) {
  const at::Tensor& logits = outputs["logits"];
  const at::Tensor labels = batch["labels"].reshape({-1});
  const auto options =
      torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum).label_smoothing(smoothing);
  const at::Tensor sum =
      torch::nn::functional::cross_entropy(logits.reshape({labels.size(0), -1}), labels, options);
  return {sum, static_cast<double>((labels != -100).sum().item<std::int64_t>())};
}

}  // namespace

void EvaluationRun::run(const DataLoader& whole, bool keep) {
  const auto& accelerator = impl_.accelerator;
  impl_.parts.model->place(accelerator);
  const EvaluationMode mode(*impl_.parts.model);
  type_ = evaluation_type(trainer_, impl_.in_training);
  const HalfWidth width(*impl_.parts.model, type_);
  const at::NoGradGuard no_grad;
  sums_ = at::zeros({3}, at::TensorOptions(accelerator.device()).dtype(at::kDouble));
  if (impl_.parts.metrics) impl_.parts.metrics->reset();
  DataLoader batches =
      whole.shard(accelerator.num_processes(), accelerator.process_index(), accelerator.device(),
                  {.sharding = Sharding::by_batch, .even_batches = false});
  const std::int64_t rounds = impl_.between_steps ? most_of_all_ranks(batches.size()) : 0;
  for (auto& batch : batches) {
    take_batch(type_ ? with_type(batch, *type_) : batch, keep);
    if (impl_.between_steps) stop_when_asked();
  }
  // Ranks with fewer batches ask as often as the others.
  for (std::int64_t round = batches_; round < rounds; ++round) stop_when_asked();
}

std::int64_t EvaluationRun::most_of_all_ranks(std::int64_t count) const {
  const auto& accelerator = impl_.accelerator;
  const auto options = at::TensorOptions(accelerator.device()).dtype(at::kLong);
  return accelerator.gather(at::full({1}, count, options)).max().item<std::int64_t>();
}

void EvaluationRun::stop_when_asked() const {
  if (impl_.accelerator.should_stop()) throw EvaluationInterrupted();
}

void EvaluationRun::take_batch(const Batch& batch, bool keep) {
  const bool loss_only = impl_.args.prediction_loss_only && !keep;
  const EvaluationStep step = trainer_.prediction_step(batch, loss_only);
  if (step.loss.value.defined()) add_loss(step.loss, batch.size());
  samples_ += batch.size();
  ++batches_;
  const bool measured = !loss_only && impl_.parts.metrics;
  if (measured && impl_.args.batch_eval_metrics) impl_.parts.metrics->update(step.outputs, batch);
  const bool for_metrics = measured && !impl_.args.batch_eval_metrics;
  if (for_metrics) inputs_.add(batch, batch.size());
  if (keep || for_metrics) keep_rows(step.outputs, batch);
  impl_.call(trainer_, &TrainerCallback::on_prediction_step);
}

/// A mean stands for its rows.
void EvaluationRun::add_loss(const Loss& loss, std::int64_t rows) {
  const double factor = loss.weight ? 1.0 : static_cast<double>(rows);
  sums_[0] += loss.value.to(at::kDouble) * factor;
  sums_[1] += loss.weight.value_or(static_cast<double>(rows));
  sums_[2] += 1;
}

void EvaluationRun::keep_rows(const Batch& outputs, const Batch& batch) {
  outputs_.add(outputs, batch.size());
  indices_.insert(indices_.end(), batch.indices.begin(), batch.indices.end());
  const std::int64_t every = std::max<std::int64_t>(impl_.args.eval_accumulation_steps, 1);
  if (batches_ % every != 0) return;
  outputs_.move_to_host();
  inputs_.move_to_host();
}

LogValues EvaluationRun::metrics() {
  const auto& accelerator = impl_.accelerator;
  const at::Tensor counts =
      at::tensor({static_cast<double>(samples_), static_cast<double>(batches_)}, sums_.options());
  const at::Tensor all = accelerator.reduce(at::cat({sums_, counts})).cpu();
  const auto number = [&](int index) { return all[index].item<double>(); };
  LogValues values;
  if (number(2) > 0) values.emplace_back(prefix_ + "_loss", number(1) > 0 ? number(0) / number(1) : 0.0);
  if (impl_.parts.metrics && !impl_.args.prediction_loss_only) {
    if (!impl_.args.batch_eval_metrics) measure_all_at_once();
    for (const auto& [name, value] : impl_.parts.metrics->compute(accelerator.process_group()))
      values.emplace_back(prefix_ + "_" + name, value);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  add_speed(values, prefix_, seconds, number(3), std::ceil(number(4) / accelerator.num_processes()));
  return values;
}

/// The metrics' own exchange adds up the ranks: so one of them has everything, and the others nothing.
void EvaluationRun::measure_all_at_once() {
  const Batch& outputs = predictions();
  Batch inputs = inputs_.gathered(order_);
  inputs.indices = outputs.indices;
  inputs.valid = outputs.valid;
  if (impl_.accelerator.is_main_process()) impl_.parts.metrics->update(outputs, inputs);
}

const Batch& EvaluationRun::predictions() {
  if (predictions_) return *predictions_;
  const auto& accelerator = impl_.accelerator;
  const at::Tensor own = at::tensor(indices_, at::kLong).to(accelerator.device());
  const auto [indices, order] = at::sort(accelerator.gather(own).cpu());
  order_ = order;
  predictions_ = outputs_.gathered(order_);
  const auto* first = indices.const_data_ptr<std::int64_t>();
  predictions_->indices.assign(first, first + indices.numel());
  predictions_->valid.assign(predictions_->indices.size(), true);
  return *predictions_;
}

EvaluationInterrupted::EvaluationInterrupted()
    : Error("the evaluation was interrupted: the job was told to stop") {}

std::shared_ptr<const Dataset> Trainer::Impl::eval_dataset(
    const std::shared_ptr<const Dataset>& given) const {
  if (given) return given;
  if (parts.eval_dataset) return parts.eval_dataset;
  throw UsageError("Trainer: there is nothing to evaluate on: set TrainerParts::eval_dataset");
}

/// What a run that was interrupted in this evaluation had found out already.
std::optional<LogValues> Trainer::Impl::metrics_before_interruption(const std::string& prefix) const {
  if (!resumes_evaluation) return std::nullopt;
  for (const auto& entry : state.log_history) {
    if (entry.step != state.global_step || !entry.find(prefix + "_runtime")) continue;
    LogValues values = entry.values;
    values.pop_back();  // The epoch.
    return values;
  }
  return std::nullopt;
}

LogValues Trainer::Impl::evaluate(Trainer& trainer, const std::shared_ptr<const Dataset>& dataset,
                                  const std::string& prefix) {
  if (const auto known = metrics_before_interruption(prefix)) return *known;
  EvaluationRun run(trainer, *this, prefix);
  run.run(trainer.get_eval_dataloader(dataset), /*keep=*/false);
  LogValues metrics = run.metrics();
  trainer.log(metrics);
  control.should_evaluate = false;
  call(trainer, &TrainerCallback::on_evaluate, metrics);
  return metrics;
}

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
  if (impl_->parts.metrics && !impl_->args.prediction_loss_only) {
    const auto own = impl_->parts.metrics->names();
    if (own.empty()) return {};
    names.insert(names.begin() + 1, own.begin(), own.end());
  }
  for (auto& name : names) name = prefix + "_" + name;
  return names;
}

PredictionOutput Trainer::predict(std::shared_ptr<const Dataset> dataset, const std::string& prefix) {
  EvaluationRun run(*this, *impl_, prefix);
  run.run(get_test_dataloader(impl_->eval_dataset(dataset)), /*keep=*/true);
  PredictionOutput output{.predictions = run.predictions(), .metrics = run.metrics()};
  impl_->call(*this, &TrainerCallback::on_predict, output.metrics);
  return output;
}

Loss Trainer::compute_loss(const Batch& outputs, const Batch& batch) {
  if (impl_->parts.compute_loss) return impl_->parts.compute_loss(outputs, batch);
  const double smoothing = impl_->args.label_smoothing_factor;
  if (smoothing > 0 && outputs.contains("logits") && batch.contains("labels"))
    return smoothed(outputs, batch, smoothing);
  if (outputs.contains("loss_sum")) return {outputs["loss_sum"], outputs["loss_weight"].item<double>()};
  return {outputs.contains("loss") ? outputs["loss"] : at::Tensor()};
}

EvaluationStep Trainer::prediction_step(const Batch& batch, bool /*loss_only*/) {
  EvaluationStep step;
  step.outputs = impl_->parts.model->evaluate(batch);
  step.loss = compute_loss(step.outputs, batch);
  if (impl_->parts.preprocess_outputs) step.outputs = impl_->parts.preprocess_outputs(step.outputs, batch);
  return step;
}

Loss Trainer::training_step(const Batch& batch) {
  const Batch outputs = impl_->parts.model->forward(batch);
  const Loss loss = compute_loss(outputs, batch);
  if (!loss.value.defined()) {
    throw UsageError(
        "Trainer: there is no loss: the model's outputs have no \"loss\", and no TrainerParts::compute_loss "
        "is set");
  }
  if (loss.weight) {
    impl_->accelerator.backward(loss.value, *loss.weight);
  } else {
    impl_->accelerator.backward(loss.value);
  }
  return loss;
}

}  // namespace lockstep
