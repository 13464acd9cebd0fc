#include "train/trainer/evaluation_run.hpp"

#include <ATen/ATen.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "data/valid_samples.hpp"
#include "lockstep/core/error.hpp"
#include "train/rules/metric_names.hpp"

namespace lockstep {
namespace {

/// The dtype of an evaluation, if it differs from the model's. Not during training: the wrapped model's
/// gradients belong to the parameters as they are.
std::optional<at::ScalarType> evaluation_type(const Trainer& trainer, bool in_training) {
  const TrainingArguments& args = trainer.args();
  if (in_training || !(args.bf16_full_eval || args.fp16_full_eval)) return std::nullopt;
  return args.bf16_full_eval ? at::kBFloat16 : at::kHalf;
}

/// Converts the model to `type` for a scope, then restores its values.
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

/// Evaluation mode: within a training for a scope, otherwise from now on, as in transformers.
class EvaluationMode {
 public:
  EvaluationMode(ModelAdapter& model, bool in_training) : model_(model), in_training_(in_training) {
    model_.train(false);
  }
  ~EvaluationMode() {
    if (in_training_) model_.train(true);
  }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  ModelAdapter& model_;
  bool in_training_;
};

/// As in transformers, a metric that is called "loss" takes the place of the mean loss.
void set_value(LogValues& values, const std::string& name, double value) {
  const auto found = std::ranges::find(values, name, &LogValues::value_type::first);
  if (found == values.end()) {
    values.emplace_back(name, value);
  } else {
    found->second = value;
  }
}

Batch with_type(const Batch& batch, at::ScalarType type) {
  return tree_map(
      batch, [&](const at::Tensor& tensor) { return tensor.is_floating_point() ? tensor.to(type) : tensor; });
}

}  // namespace

void EvaluationRun::run(const DataLoader& whole, bool keep) {
  const auto& accelerator = impl_.accelerator;
  impl_.parts.model->place(accelerator);
  const EvaluationMode mode(*impl_.parts.model, impl_.in_training);
  type_ = evaluation_type(trainer_, impl_.in_training);
  const HalfWidth width(*impl_.parts.model, type_);
  const at::NoGradGuard no_grad;
  sums_ = at::zeros({4}, at::TensorOptions(accelerator.device()).dtype(at::kDouble));
  if (impl_.parts.compute_metrics) impl_.parts.compute_metrics->reset();
  DataLoader batches =
      whole.shard(accelerator.num_processes(), accelerator.process_index(), accelerator.device(),
                  {.sharding = Sharding::by_batch, .even_batches = false});
  is_stream_ = batches.is_stream();
  const bool together = impl_.parts.model->is_fully_sharded();
  const bool waits = impl_.between_steps || together;
  const std::int64_t most = is_stream_ ? evaluated_batches(impl_.args) : 0;
  std::optional<Batch> last;
  auto batch = batches.begin();
  for (std::int64_t round = 0;; ++round) {
    const bool has_batch = batch != batches.end() && (most == 0 || round < most);
    if (waits ? !goes_on(batches, has_batch, round) : !has_batch) break;
    if (has_batch) {
      const Batch whole_batch = type_ ? with_type(*batch, *type_) : *batch;
      take_valid(whole_batch, keep, together);
      if (together) last = *batch;
      ++batch;
    } else if (together) {
      // Ranks with fewer batches compute as often as the others: forward is collective.
      if (!last) last = first_batch_of(whole);
      trainer_.prediction_step(*last, /*loss_only=*/true);
    }
    if (impl_.between_steps) stop_when_asked();
  }
}

bool EvaluationRun::goes_on(const DataLoader& batches, bool has_batch, std::int64_t round) {
  if (batches.is_stream()) return most_of_all_ranks(has_batch ? 1 : 0) > 0;
  if (!rounds_) rounds_ = most_of_all_ranks(batches.size());
  return round < *rounds_;
}

/// For a rank without a batch.
Batch EvaluationRun::first_batch_of(const DataLoader& whole) const {
  DataLoader batches = whole.shard(1, 0, impl_.accelerator.device(), {});
  return *batches.begin();
}

std::int64_t EvaluationRun::most_of_all_ranks(std::int64_t count) const {
  const auto& accelerator = impl_.accelerator;
  const auto options = at::TensorOptions(accelerator.device()).dtype(at::kLong);
  return accelerator.gather(at::full({1}, count, options)).max().item<std::int64_t>();
}

void EvaluationRun::stop_when_asked() const {
  if (impl_.accelerator.should_stop()) throw EvaluationInterrupted();
}

bool EvaluationRun::measures_batches() const {
  return impl_.args.batch_eval_metrics && !impl_.parts.compute_metrics->needs_all_samples();
}

/// What a data set shows in place of a sample that it cannot read counts nowhere.
void EvaluationRun::take_valid(const Batch& batch, bool keep, bool together) {
  if (data::all_valid(batch)) return take_batch(batch, keep);
  const bool has_any = std::find(batch.valid.begin(), batch.valid.end(), true) != batch.valid.end();
  if (has_any) return take_batch(data::valid_samples(batch, "Trainer's evaluation"), keep);
  // Forward is collective.
  if (together) trainer_.prediction_step(batch, /*loss_only=*/true);
}

void EvaluationRun::take_batch(const Batch& batch, bool keep) {
  const bool loss_only = impl_.args.prediction_loss_only && !keep;
  const bool labelled = impl_.has_labels(batch);
  labelled_ += labelled ? 1 : 0;
  const EvaluationStep step = trainer_.prediction_step(batch, loss_only);
  if (step.loss.value.defined()) add_loss(step.loss, batch.size());
  samples_ += batch.size();
  ++batches_;
  const bool measured = labelled && !loss_only && impl_.parts.compute_metrics;
  const bool for_metrics = measured && !measures_batches();
  if (measured && !for_metrics) impl_.parts.compute_metrics->update(step.outputs, batch);
  if (for_metrics) inputs_.add(batch, batch.size());
  if (keep || for_metrics) keep_rows(step.outputs, batch);
  impl_.call(trainer_, &TrainerCallback::on_prediction_step);
}

/// A mean has the number of rows as its weight.
void EvaluationRun::add_loss(const Loss& loss, std::int64_t rows) {
  const at::Tensor weight =
      loss.weight.value_or(static_cast<double>(rows)).tensor().to(at::kDouble).reshape({});
  at::Tensor sum = loss.value.to(at::kDouble).reshape({});
  if (!loss.weight) sum = sum * static_cast<double>(rows);
  // Left out without waiting for the device.
  const at::Tensor counts =
      impl_.args.logging_nan_inf_filter ? sum.isfinite() : at::ones_like(sum, at::kBool);
  sums_[0] += sum.masked_fill(counts.logical_not(), 0);
  sums_[1] += weight * counts;
  sums_[2] += 1;
  sums_[3] += counts;
}

void EvaluationRun::keep_rows(const Batch& outputs, const Batch& batch) {
  outputs_.add(outputs, batch.size());
  if (is_stream_) {
    const auto& accelerator = impl_.accelerator;
    const auto first = (batches_ * accelerator.num_processes() + accelerator.process_index()) << 32;
    for (std::int64_t row = 0; row < batch.size(); ++row) indices_.push_back(first + row);
  }
  indices_.insert(indices_.end(), batch.indices.begin(), batch.indices.end());
  const std::int64_t every = std::max<std::int64_t>(impl_.args.eval_accumulation_steps, 1);
  if (batches_ % every != 0) return;
  outputs_.move_to_host();
  inputs_.move_to_host();
}

LogValues EvaluationRun::metrics() {
  const auto& accelerator = impl_.accelerator;
  const at::Tensor counts = at::tensor(
      {static_cast<double>(samples_), static_cast<double>(batches_), static_cast<double>(labelled_)},
      sums_.options());
  const at::Tensor all = accelerator.reduce(at::cat({sums_, counts})).cpu();
  const auto number = [&](int index) { return all[index].item<double>(); };
  LogValues values;
  if (number(2) > 0) {
    const double none = number(3) > 0 ? 0.0 : std::numeric_limits<double>::quiet_NaN();
    values.emplace_back(prefix_ + "_loss", number(1) > 0 ? number(0) / number(1) : none);
  }
  if (number(3) < number(2)) {
    impl_.warn(number(2) - number(3), " of the ", number(2),
               " batches had a loss that is not finite: they are left out of ", prefix_, "_loss");
  }
  if (has_metrics(number(6), number(5))) {
    if (!measures_batches()) measure_all_at_once();
    for (const auto& [name, value] : impl_.parts.compute_metrics->compute(accelerator.process_group()))
      set_value(values, train::with_prefix(prefix_, name), value);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  add_speed(values, prefix_, seconds, number(4), std::ceil(number(5) / accelerator.num_processes()));
  return values;
}

bool EvaluationRun::has_metrics(double labelled, double batches) const {
  if (!impl_.parts.compute_metrics || impl_.args.prediction_loss_only) return false;
  if (labelled == batches) return true;
  if (labelled == 0) return false;
  throw UsageError(fmt::format(
      "Trainer: {} of the {} batches of {} have labels, the others do not, so there are no "
      "metrics for all of them: give all samples labels, or name the columns with labels in label_names",
      labelled, batches, prefix_));
}

/// Updates the metrics with all samples on rank 0 only: their own exchange sums over ranks.
void EvaluationRun::measure_all_at_once() {
  const Batch& outputs = predictions();
  Batch inputs = inputs_.gathered(order_);
  inputs.indices = outputs.indices;
  inputs.valid = outputs.valid;
  if (impl_.accelerator.is_main_process()) impl_.parts.compute_metrics->update(outputs, inputs);
}

const Batch& EvaluationRun::predictions() {
  if (predictions_) return *predictions_;
  const auto& accelerator = impl_.accelerator;
  const at::Tensor own = at::tensor(indices_, at::kLong).to(accelerator.device());
  const auto [indices, order] = at::sort(accelerator.gather(own).cpu());
  order_ = order;
  predictions_ = outputs_.gathered(order_);
  const auto* first = indices.const_data_ptr<std::int64_t>();
  if (!is_stream_) predictions_->indices.assign(first, first + indices.numel());
  predictions_->valid.assign(static_cast<std::size_t>(indices.numel()), true);
  return *predictions_;
}

}  // namespace lockstep
