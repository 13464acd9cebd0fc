#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "kept_rows.hpp"
#include "trainer_impl.hpp"

namespace lockstep {

/// One evaluation of one data set. Ranks read different samples, each once, in batches of which they may have
/// different numbers; what they found is summed at the end. *Collective*.
class EvaluationRun {
 public:
  EvaluationRun(Trainer& trainer, Trainer::Impl& impl, std::string prefix)
      : trainer_(trainer),
        impl_(impl),
        prefix_(std::move(prefix)),
        outputs_(impl.accelerator),
        inputs_(impl.accelerator) {}

  /// `whole`: of all ranks. `keep`: the outputs are wanted. Throws EvaluationInterrupted.
  void run(const DataLoader& whole, bool keep);
  LogValues metrics();
  /// All ranks' outputs in the order of the data set.
  const Batch& predictions();

 private:
  void take_batch(const Batch& batch, bool keep);
  void add_loss(const Loss& loss, std::int64_t rows);
  void keep_rows(const Batch& outputs, const Batch& batch);
  std::int64_t most_of_all_ranks(std::int64_t count) const;
  void stop_when_asked() const;
  void measure_all_at_once();

  Trainer& trainer_;
  Trainer::Impl& impl_;
  std::string prefix_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  /// Sum of losses, sum of weights, whether there is a loss.
  at::Tensor sums_;
  std::optional<at::ScalarType> type_;
  std::int64_t samples_ = 0;
  std::int64_t batches_ = 0;
  train::KeptRows outputs_;
  /// Without batch_eval_metrics, what else the metrics see.
  train::KeptRows inputs_;
  std::vector<std::int64_t> indices_;
  /// Of all ranks' rows, once they were gathered.
  at::Tensor order_;
  std::optional<Batch> predictions_;
};

}  // namespace lockstep
