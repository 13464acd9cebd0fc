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

/// How good a model's answers are, over any number of batches and ranks. A metric keeps sums, a few numbers
/// whatever the number of samples: nothing else is kept, and nothing but the sums travels between ranks.
///
///     metrics::Classification scores(77);
///     for (auto& batch : batches) scores.update(model(batch["input_ids"]), batch["labels"]);
///     const auto all = scores.of_all_ranks(accelerator.process_group());
///     accelerator.print(all.accuracy(), " ", all.f1({.average = metrics::Average::macro}));
///
/// The values are those of scikit-learn's functions on the same samples (tests/golden/make_metrics.py), the
/// rules for what is undefined too. All metrics are values: a copy has sums of its own. One thread at a time.
/// update() and the readings are *Local*; of_all_ranks() is *Collective*: every rank of the group must call
/// it, in the same order, on metrics that were made alike, and may have seen any number of samples, none as
/// well. Readings throw UsageError when no sample has been seen.
///
/// A Trainer takes any of them that takes tensors as it stands: see ComputeMetrics. names() and values() are
/// what it shows of them.
///
/// Tensors may lie on any device. update() waits for them: it copies the sums of the batch to the host.
namespace metrics {

/// Labels that do not count: what cross_entropy ignores, and padding has.
inline constexpr std::int64_t kIgnoredLabel = -100;

/// The share of right answers. `sklearn.metrics.accuracy_score`.
class Accuracy {
 public:
  /// `predictions` are class numbers of the shape of `labels` (integers), or scores of one dimension more,
  /// [..., classes] (floating point), of which the largest is the answer. Labels that are kIgnoredLabel do
  /// not count. Throws UsageError for other shapes.
  void update(const at::Tensor& predictions, const at::Tensor& labels);
  /// Adds samples that were counted elsewhere. Throws UsageError for numbers that contradict each other.
  void update(std::int64_t correct, std::int64_t samples);
  /// A new metric with the sums of all ranks. *Collective*.
  Accuracy of_all_ranks(const ProcessGroup& group) const;

  /// Samples so far that count.
  std::int64_t samples() const noexcept { return samples_; }
  /// From 0 to 1.
  double compute() const;
  /// What a Trainer shows: the names, and the readings under them.
  static std::vector<std::string> names() { return {"accuracy"}; }
  std::vector<double> values() const { return {compute()}; }

 private:
  std::int64_t correct_ = 0;
  std::int64_t samples_ = 0;
};

/// How the scores of single classes become one.
enum class Average : std::uint8_t {
  /// The score of class 1; for two classes only.
  binary,
  /// The score of all decisions counted together.
  micro,
  /// The plain mean over the classes that are among the labels or the predictions.
  macro,
  /// Their mean weighted by how often each is a label.
  weighted,
};

/// How precision, recall and F1 are computed.
struct ScoreOptions {
  Average average = Average::macro;
  /// The score of a class whose own is 0/0 (precision of one never predicted, recall of one that is no
  /// label): 0, 1, or NaN, which leaves such classes out of the mean.
  double zero_division = 0;
};

/// Accuracy, precision, recall, F1 and Matthews' correlation of answers in a fixed number of classes, from
/// three counts for each class. `sklearn.metrics`: accuracy_score, precision_score, recall_score, f1_score,
/// matthews_corrcoef.
class Classification {
 public:
  /// Throws UsageError for fewer than two classes.
  explicit Classification(std::int64_t num_classes);

  /// As Accuracy::update; scores have num_classes in their last dimension. Throws DataError, naming it and
  /// its place, for a label or a prediction out of range: 0 to num_classes - 1, or kIgnoredLabel for a label.
  void update(const at::Tensor& predictions, const at::Tensor& labels);
  /// The same for class numbers in memory, of equal lengths.
  void update(std::span<const std::int64_t> predictions, std::span<const std::int64_t> labels);
  /// A new metric with the sums of all ranks. *Collective*.
  Classification of_all_ranks(const ProcessGroup& group) const;

  /// Samples so far that count.
  std::int64_t samples() const;
  /// The share of right answers.
  double accuracy() const;
  /// Of those predicted to be of a class, the share that is. Throws UsageError for Average::binary with more
  /// than two classes.
  double precision(const ScoreOptions& options = {}) const;
  /// Of those that are of a class, the share that was predicted so. Likewise.
  double recall(const ScoreOptions& options = {}) const;
  /// The harmonic mean of both, 2 tp / (2 tp + fp + fn). Likewise.
  double f1(const ScoreOptions& options = {}) const;
  /// From -1 to 1, for any number of classes; 0 where labels or predictions are all of one class.
  double matthews() const;
  /// What a Trainer shows: the names, and the readings under them; F1 is that of class 1 for two classes,
  /// else the mean over the classes.
  static std::vector<std::string> names() { return {"accuracy", "f1"}; }
  std::vector<double> values() const;

 private:
  struct Shares;
  double score(const ScoreOptions& options, double Shares::*which) const;
  double mean_over_classes(const ScoreOptions& options, double Shares::*which) const;
  Shares shares_of(std::int64_t hits, std::int64_t predicted, std::int64_t actual,
                   double zero_division) const;

  /// For each class: predicted rightly, predicted, being the label.
  std::vector<std::int64_t> hits_, predicted_, actual_;
};

/// exp of the mean loss of a token: of cross-entropies in natural logarithms.
class Perplexity {
 public:
  /// The sum of the losses of so many tokens.
  void update(double loss_sum, std::int64_t tokens);
  /// `logits` [rows, tokens, vocabulary] and `labels` [rows, tokens]. With `shift`, as causal language models
  /// are trained, a token's logits are for the label after it; without, for its own.
  void update(const at::Tensor& logits, const at::Tensor& labels, bool shift = true);
  /// A new metric with the sums of all ranks. *Collective*.
  Perplexity of_all_ranks(const ProcessGroup& group) const;

  /// Tokens so far that count.
  std::int64_t tokens() const noexcept { return tokens_; }
  /// The mean loss.
  double loss() const;
  /// Its exponential; infinite where that is above the range of double.
  double compute() const;
  /// What a Trainer shows: the names, and the readings under them.
  static std::vector<std::string> names() { return {"perplexity"}; }
  std::vector<double> values() const { return {compute()}; }

 private:
  double loss_sum_ = 0;
  std::int64_t tokens_ = 0;
};

/// How much of translations is in the references: BLEU (Papineni et al., 2002) of a whole corpus with one
/// reference a text, up to four words, smoothed as `sacrebleu.corpus_bleu(..., tokenize="none")` does: where
/// runs of a length match nowhere, 1 / 2 of one counts as right, 1 / 4 for the next such length.
class Bleu {
 public:
  /// Words are what blanks (spaces, tabs, line ends) divide.
  void update(std::string_view translation, std::string_view reference);
  /// A new metric with the sums of all ranks. *Collective*.
  Bleu of_all_ranks(const ProcessGroup& group) const;

  /// Pairs so far.
  std::int64_t samples() const noexcept { return sums_[kPairs]; }
  /// From 0 to 100.
  double compute() const;

 private:
  static constexpr std::size_t kLongest = 4;
  /// Runs of 1 to 4 words that are right, all of them, words on both sides, pairs.
  enum : std::size_t { kRight = 0, kAll = kLongest, kWords = 2 * kLongest, kReference, kPairs, kSums };
  std::array<std::int64_t, kSums> sums_{};
};

/// Errors of predicted numbers, in float64 whatever the dtype of the tensors. With several outputs a reading
/// is the plain mean of the outputs' own. `sklearn.metrics`: mean_squared_error, root_mean_squared_error,
/// mean_absolute_error, r2_score.
class Regression {
 public:
  /// Numbers that a sample has. Throws UsageError below 1.
  explicit Regression(std::int64_t outputs = 1);

  /// Both [rows, outputs]; for one output [rows] serves too. Throws UsageError for other shapes.
  void update(const at::Tensor& predictions, const at::Tensor& targets);
  /// The same in memory, row by row.
  void update(std::span<const double> predictions, std::span<const double> targets);
  /// A new metric with the sums of all ranks, the same bits on each. *Collective*.
  Regression of_all_ranks(const ProcessGroup& group) const;

  /// Samples so far.
  std::int64_t samples() const noexcept { return static_cast<std::int64_t>(samples_); }
  /// Mean squared error.
  double mse() const;
  /// Its root.
  double rmse() const;
  /// Mean absolute error.
  double mae() const;
  /// 1 minus squared errors by the targets' spread around their mean. Where all targets are equal: 1 without
  /// errors, else 0. NaN for one sample.
  double r2() const;
  /// What a Trainer shows: the names, and the readings under them.
  static std::vector<std::string> names() { return {"mse", "rmse", "mae", "r2"}; }
  std::vector<double> values() const { return {mse(), rmse(), mae(), r2()}; }

 private:
  /// The spread is kept around the mean of what was seen, not as a sum of squares: targets far from 0 keep
  /// their digits.
  struct Output {
    double squared = 0;
    double absolute = 0;
    double mean = 0;
    double spread = 0;
  };
  void check() const;
  /// samples_, then each output's four numbers: what ranks exchange.
  std::vector<double> state() const;
  void merge(std::span<const double> state);

  std::vector<Output> outputs_;
  double samples_ = 0;
};

}  // namespace metrics
}  // namespace lockstep
