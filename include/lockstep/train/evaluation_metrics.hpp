#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/comm/process_group.hpp"
#include "lockstep/data/batch.hpp"
#include "lockstep/train/metrics.hpp"
#include "lockstep/train/trackers.hpp"

namespace lockstep {

/// Names and values of an evaluation's metrics: `Metrics{{"accuracy", 0.9}}`.
using Metrics = LogValues;

/// All samples of an evaluation, one row per sample in the order of the data set, on the host. If batches
/// differ in dimension 1, rows are padded with -100 (unsigned integers become signed), Booleans with false.
/// Hugging Face's EvalPrediction, whose `label_ids` are `inputs["labels"]`.
struct EvaluationPrediction {
  /// The model's outputs by name, after preprocess_logits_for_metrics.
  const Batch& predictions;
  /// The samples of the data set.
  const Batch& inputs;
};

/// Metrics of an evaluation, computed from sums whose size does not depend on the number of samples. One
/// object is reused by successive evaluations. One thread.
class EvaluationMetrics {
 public:
  virtual ~EvaluationMetrics() = default;
  /// Starts an evaluation. *Local*.
  virtual void reset() = 0;
  /// A batch of this rank. Each sample appears once, on one rank. Without batch_eval_metrics, or with
  /// needs_all_samples(), rank 0 gets all samples in one call, on the host, and the other ranks none.
  /// *Local*.
  virtual void update(const Batch& outputs, const Batch& batch) = 0;
  /// The metrics over all ranks, the same on each, by name without prefix; a name that begins with "eval_" in
  /// evaluate(), or with "test_" in predict(), is kept. "loss" replaces the mean loss. `group` is the group
  /// of the ranks. *Collective*.
  virtual Metrics compute(const ProcessGroup& group) = 0;
  /// The names that compute() returns, so that a misspelled metric_for_best_model is found before the first
  /// step. Empty: not known before the first evaluation. *Local*.
  virtual std::vector<std::string> names() const { return {}; }
  /// Whether the metric needs all samples, whatever batch_eval_metrics says. *Local*, the same on every rank.
  virtual bool needs_all_samples() const { return false; }
};

/// Selects the arguments of a lockstep::metrics update from a batch.
using MetricInputs =
    std::function<std::pair<at::Tensor, at::Tensor>(const Batch& outputs, const Batch& batch)>;

/// Adapts a metric of lockstep::metrics to a Trainer: computed from the output "logits" and the input
/// "labels", or from the result of `inputs`; under its own names, with `prefix` before them.
template <class Metric>
class MetricAdapter final : public EvaluationMetrics {
 public:
  explicit MetricAdapter(Metric metric, MetricInputs inputs = {}, std::string prefix = {})
      : empty_(std::move(metric)), sums_(empty_), inputs_(std::move(inputs)), prefix_(std::move(prefix)) {}

  void reset() override { sums_ = empty_; }
  void update(const Batch& outputs, const Batch& batch) override {
    if (!inputs_) return sums_.update(outputs["logits"], batch["labels"]);
    const auto [predictions, labels] = inputs_(outputs, batch);
    sums_.update(predictions, labels);
  }
  Metrics compute(const ProcessGroup& group) override {
    const auto values = sums_.of_all_ranks(group).values();
    const auto known = names();
    Metrics result;
    for (std::size_t i = 0; i < known.size(); ++i) result.emplace_back(known[i], values[i]);
    return result;
  }
  std::vector<std::string> names() const override {
    auto names = Metric::names();
    for (auto& name : names) name.insert(0, prefix_);
    return names;
  }

 private:
  Metric empty_, sums_;
  MetricInputs inputs_;
  std::string prefix_;
};

/// What TrainerComponents::compute_metrics accepts:
///   - a function as in Hugging Face, called on rank 0 with all samples; all ranks get its result, or its
///     exception (RemoteError on the others):
///         [](const EvaluationPrediction& all) -> Metrics { return {{"mae", mean_error_of(all)}}; }
///   - a metric of lockstep::metrics, which keeps sums and no samples: `metrics::Classification(77)`
///   - an EvaluationMetrics of the program
///   - several of these with different names: `std::vector<ComputeMetrics>{metrics::Accuracy(), mean_error}`.
/// Null: an evaluation only has its loss. A handle.
class ComputeMetrics {
 public:
  ComputeMetrics() = default;
  ComputeMetrics(std::nullptr_t) {}
  template <std::derived_from<EvaluationMetrics> Own>
  ComputeMetrics(std::shared_ptr<Own> metrics) : metrics_(std::move(metrics)) {}
  template <class Metric>
  requires requires(Metric& metric, const at::Tensor& tensor) {
    metric.update(tensor, tensor);
    metric.values();
  }
  ComputeMetrics(Metric metric, MetricInputs inputs = {}, std::string prefix = {})
      : metrics_(std::make_shared<MetricAdapter<Metric>>(std::move(metric), std::move(inputs),
                                                         std::move(prefix))) {}
  template <class Function>
  requires std::is_invocable_r_v<Metrics, Function&, const EvaluationPrediction&> ComputeMetrics(
      Function function)
      : metrics_(of_function(std::move(function))) {}

  /// Throws UsageError if one is null or two have the same name.
  ComputeMetrics(const std::vector<ComputeMetrics>& several);

  explicit operator bool() const noexcept { return metrics_ != nullptr; }
  EvaluationMetrics* operator->() const noexcept { return metrics_.get(); }

 private:
  static std::shared_ptr<EvaluationMetrics> of_function(
      std::function<Metrics(const EvaluationPrediction&)> function);

  std::shared_ptr<EvaluationMetrics> metrics_;
};

}  // namespace lockstep
