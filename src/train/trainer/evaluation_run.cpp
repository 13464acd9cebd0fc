#include "evaluation_run.hpp"

#include <ATen/ATen.h>
#include <torch/nn/functional/loss.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

/// What transformers fills up predictions with.
constexpr double kFill = -100;

/// Tensors that may differ in dimension 1, one below the other.
at::Tensor joined(const std::vector<at::Tensor>& tensors) {
  std::int64_t widest = 0;
  for (const auto& tensor : tensors) widest = std::max(widest, tensor.dim() > 1 ? tensor.size(1) : 0);
  std::vector<at::Tensor> filled;
  for (const auto& tensor : tensors) {
    if (tensor.dim() < 2 || tensor.size(1) == widest) {
      filled.push_back(tensor);
      continue;
    }
    auto shape = tensor.sizes().vec();
    shape[1] = widest - shape[1];
    filled.push_back(at::cat({tensor, at::full(shape, kFill, tensor.options())}, 1));
  }
  return at::cat(filled);
}

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

void EvaluationRun::run(const std::shared_ptr<const Dataset>& dataset, bool keep) {
  const auto& accelerator = impl_.accelerator;
  impl_.parts.model->place(accelerator);
  const EvaluationMode mode(*impl_.parts.model);
  type_ = evaluation_type(trainer_, impl_.in_training);
  const HalfWidth width(*impl_.parts.model, type_);
  const at::NoGradGuard no_grad;
  sums_ = at::zeros({3}, at::TensorOptions(accelerator.device()).dtype(at::kDouble));
  if (impl_.parts.metrics) impl_.parts.metrics->reset();
  const DataLoader whole = trainer_.get_eval_dataloader(dataset);
  DataLoader batches =
      whole.shard(accelerator.num_processes(), accelerator.process_index(), accelerator.device(),
                  {.sharding = Sharding::by_batch, .even_batches = false});
  for (auto& batch : batches) take_batch(type_ ? with_type(batch, *type_) : batch, keep);
}

void EvaluationRun::take_batch(const Batch& batch, bool keep) {
  const bool loss_only = impl_.args.prediction_loss_only && !keep;
  const EvaluationStep step = trainer_.prediction_step(batch, loss_only);
  if (step.loss.value.defined()) add_loss(step.loss, batch.size());
  samples_ += batch.size();
  ++batches_;
  if (!loss_only && impl_.parts.metrics) impl_.parts.metrics->update(step.outputs, batch);
  if (keep) keep_rows(step.outputs, batch);
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
  for (const auto& [name, tensor] : outputs.items()) {
    if (tensor.dim() > 0 && tensor.size(0) == batch.size()) kept_[name].push_back(tensor.detach());
  }
  indices_.insert(indices_.end(), batch.indices.begin(), batch.indices.end());
  const std::int64_t every = std::max<std::int64_t>(impl_.args.eval_accumulation_steps, 1);
  if (batches_ % every == 0) move_to_host();
}

/// The newest are on the device, if any are.
void EvaluationRun::move_to_host() {
  for (auto& [name, tensors] : kept_) {
    for (auto tensor = tensors.rbegin(); tensor != tensors.rend() && !tensor->is_cpu(); ++tensor)
      *tensor = tensor->cpu();
  }
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
    for (const auto& [name, value] : impl_.parts.metrics->compute(accelerator.process_group()))
      values.emplace_back(prefix_ + "_" + name, value);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  add_speed(values, prefix_, seconds, number(3), std::ceil(number(4) / accelerator.num_processes()));
  return values;
}

/// The names that some rank has: one may have read nothing.
std::vector<std::string> EvaluationRun::names_of_all() const {
  std::vector<std::string> names;
  for (const auto& entry : kept_) names.push_back(entry.first);
  const auto all = impl_.accelerator.gather_object(names);
  const std::set<std::string> different(all.begin(), all.end());
  return {different.begin(), different.end()};
}

at::Tensor EvaluationRun::gathered(const std::string& name) {
  const auto& accelerator = impl_.accelerator;
  const auto& own = kept_[name];
  at::Tensor tensor = own.empty() ? at::Tensor() : joined(own).cpu();
  nlohmann::json form;
  if (tensor.defined())
    form = {{"type", static_cast<int>(tensor.scalar_type())}, {"shape", tensor.sizes().vec()}};
  const auto forms = accelerator.gather_object(std::vector<nlohmann::json>{form});
  const auto known =
      std::find_if(forms.begin(), forms.end(), [](const auto& one) { return one.is_object(); });
  if (!tensor.defined()) {
    auto shape = (*known)["shape"].get<std::vector<std::int64_t>>();
    shape[0] = 0;
    tensor = at::empty(shape, static_cast<at::ScalarType>((*known)["type"].get<int>()));
  }
  tensor = tensor.to(accelerator.device());
  if (tensor.dim() > 1) tensor = accelerator.pad_across_processes(tensor, 1, kFill);
  return accelerator.gather(tensor).cpu();
}

Batch EvaluationRun::predictions() {
  move_to_host();
  const auto& accelerator = impl_.accelerator;
  const at::Tensor own = at::tensor(indices_, at::kLong).to(accelerator.device());
  const auto [indices, order] = at::sort(accelerator.gather(own).cpu());
  Batch result;
  for (const auto& name : names_of_all()) result.set(name, gathered(name).index_select(0, order));
  const auto* first = indices.const_data_ptr<std::int64_t>();
  result.indices.assign(first, first + indices.numel());
  result.valid.assign(result.indices.size(), true);
  return result;
}

std::shared_ptr<const Dataset> Trainer::Impl::eval_dataset(
    const std::shared_ptr<const Dataset>& given) const {
  if (given) return given;
  if (parts.eval_dataset) return parts.eval_dataset;
  throw UsageError("Trainer: there is nothing to evaluate on: set TrainerParts::eval_dataset");
}

LogValues Trainer::evaluate(std::shared_ptr<const Dataset> dataset, const std::string& prefix) {
  LogValues all;
  std::map<std::string, std::shared_ptr<const Dataset>> sets;
  if (!dataset && !impl_->parts.eval_datasets.empty()) {
    for (const auto& [name, one] : impl_->parts.eval_datasets) sets.emplace(prefix + "_" + name, one);
  } else {
    sets.emplace(prefix, impl_->eval_dataset(dataset));
  }
  for (const auto& [name, one] : sets) {
    EvaluationRun run(*this, *impl_, name);
    run.run(one, /*keep=*/false);
    const LogValues metrics = run.metrics();
    log(metrics);
    impl_->control.should_evaluate = false;
    impl_->call(*this, &TrainerCallback::on_evaluate, metrics);
    all.insert(all.end(), metrics.begin(), metrics.end());
  }
  return all;
}

PredictionOutput Trainer::predict(std::shared_ptr<const Dataset> dataset, const std::string& prefix) {
  EvaluationRun run(*this, *impl_, prefix);
  run.run(impl_->eval_dataset(dataset), /*keep=*/true);
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
        "is "
        "set");
  }
  if (loss.weight) {
    impl_->accelerator.backward(loss.value, *loss.weight);
  } else {
    impl_->accelerator.backward(loss.value);
  }
  return loss;
}

}  // namespace lockstep
