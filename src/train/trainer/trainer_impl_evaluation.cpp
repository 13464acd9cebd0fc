#include <algorithm>

#include "lockstep/comm/trace.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/collate.hpp"
#include "train/trainer/evaluation_run.hpp"
#include "train/trainer/trainer_impl.hpp"

namespace lockstep {
namespace {

bool has_column(const Batch& batch, const std::string& name) {
  const auto& texts = batch.text_items();
  return batch.contains(name) || std::ranges::find(texts, name, &Batch::TextItem::first) != texts.end();
}

bool names_label(const std::string& name) {
  return name.find("label") != std::string::npos || name == "start_positions" || name == "end_positions";
}

bool has_label_column(const Batch& batch) {
  const auto is_label = [](const auto& item) { return names_label(item.first); };
  return std::ranges::any_of(batch.items(), is_label) || std::ranges::any_of(batch.text_items(), is_label);
}

}  // namespace

/// Modules have no names of inputs, from which transformers knows those of labels. The trainer's own data
/// tell whether labels are to be expected.
bool Trainer::Impl::has_labels(const Batch& batch) {
  if (!args.label_names.empty())
    return std::ranges::all_of(args.label_names, [&](const auto& name) { return has_column(batch, name); });
  if (has_label_column(batch)) return true;
  if (!own_labels) {
    const auto one = [&](const std::shared_ptr<const Dataset>& data) {
      if (!data || data->size() == 0) return false;
      std::vector<Example> first{data->get_named(0, {})};
      return has_label_column(parts.data_collator ? parts.data_collator(std::move(first))
                                                  : default_collate(std::move(first)));
    };
    own_labels =
        one(parts.train_dataset) || one(parts.eval_dataset) ||
        std::ranges::any_of(parts.eval_datasets, [&](const auto& entry) { return one(entry.second); });
  }
  return !*own_labels;
}

std::shared_ptr<const Dataset> Trainer::Impl::eval_dataset(
    const std::shared_ptr<const Dataset>& given) const {
  if (given) return given;
  if (parts.eval_stream && (parts.eval_dataset || !parts.eval_datasets.empty()))
    throw UsageError("Trainer: both eval_dataset and eval_stream are set; leave one of them out");
  if (parts.eval_dataset || parts.eval_stream) return parts.eval_dataset;
  throw UsageError(
      "Trainer: there is nothing to evaluate on: set TrainerComponents::eval_dataset or eval_stream");
}

/// The logged result of an evaluation that had finished before the run was interrupted.
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
  const trace::Range range("evaluation");
  EvaluationRun run(trainer, *this, prefix);
  run.run(trainer.get_eval_dataloader(dataset), /*keep=*/false);
  LogValues metrics = run.metrics();
  trainer.log(metrics);
  control.should_evaluate = false;
  call(trainer, &TrainerCallback::on_evaluate, metrics);
  return metrics;
}

std::int64_t evaluated_batches(const TrainingArguments& args) {
  return args.fast_dev_run > 0 ? args.fast_dev_run : args.limit_eval_batches;
}

}  // namespace lockstep
