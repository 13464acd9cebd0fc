#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace at {
class Tensor;
}

namespace lockstep {

class ProcessGroup;

/// Metrics of a model over any number of batches and ranks. A metric keeps a few sums, whatever the number of
/// samples; only these sums are communicated.
///
///     metrics::Classification scores(77);
///     for (auto& batch : batches) scores.update(model(batch["input_ids"]), batch["labels"]);
///     const auto all = scores.of_all_ranks(accelerator.process_group());
///     accelerator.print(all.accuracy(), " ", all.f1({.average = metrics::Average::macro}));
///
/// The values are those of scikit-learn's functions on the same samples (tests/golden/make_metrics.py),
/// including its rules for undefined values. All metrics are values: a copy has its own sums. One thread at a
/// time. update() and the functions that return results are *Local*. of_all_ranks() is *Collective*: every
/// rank of the group must call it, in the same order, on metrics that were constructed with the same
/// arguments; the number of samples may differ, and may be 0. Results throw UsageError if there are no
/// samples.
///
/// A Trainer accepts every metric whose update() takes tensors: see ComputeMetrics. It logs values() by their
/// names().
///
/// Tensors may be on any device. update() waits for them: it copies the sums of the batch to the host.
namespace metrics {

/// Label that is not counted, as in cross_entropy and padding.
inline constexpr std::int64_t kIgnoredLabel = -100;

/// Fraction of correct predictions. `sklearn.metrics.accuracy_score`.
class Accuracy {
 public:
  /// `predictions` are class numbers in the shape of `labels` (integers), or scores with one more dimension,
  /// [..., classes] (floating point), of which the largest is the prediction. Labels equal to kIgnoredLabel
  /// are not counted. Throws UsageError for other shapes, and for a single score per sample: whether that is
  /// a logit or a probability is not known (torchmetrics guesses by its values), so compare it with 0 or 0.5
  /// first. Throws DataError for a label that is not a whole number.
  void update(const at::Tensor& predictions, const at::Tensor& labels);
  /// Adds samples that were counted elsewhere. Throws UsageError if the numbers contradict each other.
  void update(std::int64_t correct, std::int64_t samples);
  /// A new metric with the sums of all ranks. *Collective*.
  Accuracy of_all_ranks(const ProcessGroup& group) const;

  /// Number of counted samples.
  std::int64_t samples() const noexcept { return samples_; }
  /// From 0 to 1.
  double compute() const;
  /// The names and values that a Trainer logs.
  static std::vector<std::string> names() { return {"accuracy"}; }
  std::vector<double> values() const { return {compute()}; }

 private:
  std::int64_t correct_ = 0;
  std::int64_t samples_ = 0;
};

/// How the scores of the classes are combined.
enum class Average : std::uint8_t {
  /// The score of class 1; for two classes only.
  binary,
  /// The score of all decisions counted together.
  micro,
  /// The unweighted mean over the classes that occur in labels or predictions.
  macro,
  /// Their mean, weighted by the number of labels of each class.
  weighted,
};

/// Options of precision, recall and F1.
struct ScoreOptions {
  Average average = Average::macro;
  /// The score of a class if it is 0/0 (precision of a class that was never predicted, recall of one that is
  /// not a label): 0, 1, or NaN, which excludes such classes from the mean.
  double zero_division = 0;
};

/// Accuracy, precision, recall, F1 and Matthews correlation coefficient for a fixed number of classes, from
/// three counts per class. `sklearn.metrics`: accuracy_score, precision_score, recall_score, f1_score,
/// matthews_corrcoef.
class Classification {
 public:
  /// Throws UsageError if there are fewer than two classes.
  explicit Classification(std::int64_t num_classes);

  /// As Accuracy::update; the last dimension of scores is num_classes. Throws DataError, which names the
  /// value and its position, if a label or a prediction is out of range: 0 to num_classes - 1, or
  /// kIgnoredLabel for a label.
  void update(const at::Tensor& predictions, const at::Tensor& labels);
  /// The same for class numbers in memory; both have the same length.
  void update(std::span<const std::int64_t> predictions, std::span<const std::int64_t> labels);
  /// A new metric with the sums of all ranks. *Collective*.
  Classification of_all_ranks(const ProcessGroup& group) const;

  /// Number of counted samples.
  std::int64_t samples() const;
  /// Fraction of correct predictions.
  double accuracy() const;
  /// Of the samples predicted to be of a class, the fraction that is. Throws UsageError for Average::binary
  /// with more than two classes.
  double precision(const ScoreOptions& options = {}) const;
  /// Of the samples of a class, the fraction predicted to be of it. Throws as precision().
  double recall(const ScoreOptions& options = {}) const;
  /// The harmonic mean of both, 2 tp / (2 tp + fp + fn). Throws as precision().
  double f1(const ScoreOptions& options = {}) const;
  /// From -1 to 1, for any number of classes; 0 if all labels or all predictions are of one class.
  double matthews() const;
  /// The names and values that a Trainer logs. F1 is that of class 1 if there are two classes, otherwise the
  /// mean over the classes.
  static std::vector<std::string> names() { return {"accuracy", "f1"}; }
  std::vector<double> values() const;

 private:
  struct Shares;
  double score(const ScoreOptions& options, double Shares::*which) const;
  double mean_over_classes(const ScoreOptions& options, double Shares::*which) const;
  Shares shares_of(std::int64_t hits, std::int64_t predicted, std::int64_t actual,
                   double zero_division) const;

  /// Per class: correct predictions, predictions, labels.
  std::vector<std::int64_t> hits_, predicted_, actual_;
};

/// exp of the mean loss per token, of cross entropies in natural logarithms.
class Perplexity {
 public:
  /// Adds the sum of the losses of `tokens` tokens.
  void update(double loss_sum, std::int64_t tokens);
  /// `logits` [rows, tokens, vocabulary] and `labels` [rows, tokens]. With `shift`, as causal language models
  /// are trained, the logits of a token predict the label after it; without, its own label.
  void update(const at::Tensor& logits, const at::Tensor& labels, bool shift = true);
  /// A new metric with the sums of all ranks. *Collective*.
  Perplexity of_all_ranks(const ProcessGroup& group) const;

  /// Number of counted tokens.
  std::int64_t tokens() const noexcept { return tokens_; }
  /// Mean loss per token.
  double loss() const;
  /// exp of loss(); infinite if that exceeds the range of double.
  double compute() const;
  /// The names and values that a Trainer logs.
  static std::vector<std::string> names() { return {"perplexity"}; }
  std::vector<double> values() const { return {compute()}; }

 private:
  double loss_sum_ = 0;
  std::int64_t tokens_ = 0;
};

/// BLEU (Papineni et al., 2002) of a whole corpus with one reference per text and n-grams up to 4, smoothed
/// as in `sacrebleu.corpus_bleu(..., tokenize="none")`: if no n-gram of a length matches, 1 / 2 counts as
/// correct, 1 / 4 for the next such length.
class Bleu {
 public:
  /// Words are separated by whitespace (spaces, tabs, line ends).
  void update(std::string_view translation, std::string_view reference);
  /// A new metric with the sums of all ranks. *Collective*.
  Bleu of_all_ranks(const ProcessGroup& group) const;

  /// Number of pairs.
  std::int64_t samples() const noexcept { return sums_[kPairs]; }
  /// From 0 to 100.
  double compute() const;

 private:
  static constexpr std::size_t kLongest = 4;
  /// Matching n-grams of 1 to 4 words, all of them, words on both sides, pairs.
  enum : std::size_t { kRight = 0, kAll = kLongest, kWords = 2 * kLongest, kReference, kPairs, kSums };
  std::array<std::int64_t, kSums> sums_{};
};

/// Errors of predicted numbers, computed in float64 whatever the dtype of the tensors. With several outputs,
/// a result is the unweighted mean over the outputs. `sklearn.metrics`: mean_squared_error,
/// root_mean_squared_error, mean_absolute_error, r2_score.
class Regression {
 public:
  /// Numbers per sample. Throws UsageError if below 1.
  explicit Regression(std::int64_t outputs = 1);

  /// Both [rows, outputs], or [rows] for one output. Throws UsageError for other shapes.
  void update(const at::Tensor& predictions, const at::Tensor& targets);
  /// The same in memory, row by row.
  void update(std::span<const double> predictions, std::span<const double> targets);
  /// A new metric with the sums of all ranks, bit-identical on each. *Collective*.
  Regression of_all_ranks(const ProcessGroup& group) const;

  /// Number of samples.
  std::int64_t samples() const noexcept { return static_cast<std::int64_t>(samples_); }
  /// Mean squared error.
  double mse() const;
  /// Root mean squared error.
  double rmse() const;
  /// Mean absolute error.
  double mae() const;
  /// Coefficient of determination: 1 minus the squared errors divided by the targets' squared deviations from
  /// their mean. If all targets are equal: 1 without errors, otherwise 0. NaN for one sample.
  double r2() const;
  /// The names and values that a Trainer logs.
  static std::vector<std::string> names() { return {"mse", "rmse", "mae", "r2"}; }
  std::vector<double> values() const { return {mse(), rmse(), mae(), r2()}; }

 private:
  /// `spread` is the sum of squared deviations from the mean so far, not of squares: targets far from 0 keep
  /// their precision.
  struct Output {
    double squared = 0;
    double absolute = 0;
    double mean = 0;
    double spread = 0;
  };
  void check() const;
  /// samples_, then the four numbers of each output: what the ranks exchange.
  std::vector<double> state() const;
  void merge(std::span<const double> state);

  std::vector<Output> outputs_;
  double samples_ = 0;
};

}  // namespace metrics
}  // namespace lockstep
