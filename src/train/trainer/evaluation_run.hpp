#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/batch.hpp"
#include "train/trainer/prediction_gatherer.hpp"
#include "train/trainer/trainer_impl.hpp"

namespace lockstep {

/// One evaluation of one data set. Ranks read different samples, each sample once; their numbers of batches
/// may differ. Results are summed at the end. *Collective*.
class EvaluationRun {
 public:
  EvaluationRun(Trainer& trainer, Trainer::Impl& impl, std::string prefix)
      : trainer_(trainer),
        impl_(impl),
        prefix_(std::move(prefix)),
        outputs_(impl.accelerator),
        inputs_(impl.accelerator) {}

  /// `whole`: the loader of all ranks. `keep`: the outputs are needed. Throws EvaluationInterrupted.
  void run(const DataLoader& whole, bool keep);
  LogValues metrics();
  /// All ranks' outputs in the order of the data set; for a stream, in the order of the ranks' batches.
  const Batch& predictions();

 private:
  /// Whether any rank has a batch in this round. For ranks that wait for each other.
  bool goes_on(const DataLoader& batches, bool has_batch, std::int64_t round);
  Batch first_batch_of(const DataLoader& whole) const;
  void take_valid(const Batch& batch, bool keep, bool together);
  void take_batch(const Batch& batch, bool keep);
  void add_loss(const Loss& loss, std::int64_t rows);
  void keep_rows(const Batch& outputs, const Batch& batch);
  std::int64_t most_of_all_ranks(std::int64_t count) const;
  void stop_when_asked() const;
  /// Whether metrics are updated batch by batch.
  bool measures_batches() const;
  /// Whether there are metrics to compute. `labelled` of so many `batches` of all ranks have labels. Throws
  /// UsageError if only some do.
  bool has_metrics(double labelled, double batches) const;
  void measure_all_at_once();

  Trainer& trainer_;
  Trainer::Impl& impl_;
  std::string prefix_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  /// How many of the batches have labels.
  std::int64_t labelled_ = 0;
  /// Sum of losses, sum of weights, batches with a loss, and those of them that count.
  at::Tensor sums_;
  std::optional<at::ScalarType> type_;
  std::int64_t samples_ = 0;
  std::int64_t batches_ = 0;
  train::PredictionGatherer outputs_;
  /// What metrics that need all samples at once read besides the outputs.
  train::PredictionGatherer inputs_;
  /// Number of rounds of all ranks, if it is known and they wait for each other.
  std::optional<std::int64_t> rounds_;
  bool is_stream_ = false;
  /// For a stream: the position of each row among those of all ranks.
  std::vector<std::int64_t> indices_;
  /// The order of all ranks' rows, once they are gathered.
  at::Tensor order_;
  std::optional<Batch> predictions_;
};

}  // namespace lockstep
