#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trainer_impl.hpp"

namespace lockstep {

/// One evaluation of one data set. Ranks read different samples, each once, in batches of which they may have
/// different numbers; what they found is summed at the end. *Collective*.
class EvaluationRun {
 public:
  EvaluationRun(Trainer& trainer, Trainer::Impl& impl, std::string prefix)
      : trainer_(trainer), impl_(impl), prefix_(std::move(prefix)) {}

  /// `keep`: the outputs are wanted.
  void run(const std::shared_ptr<const Dataset>& dataset, bool keep);
  LogValues metrics();
  /// All ranks' outputs in the order of the data set.
  Batch predictions();

 private:
  void take_batch(const Batch& batch, bool keep);
  void add_loss(const Loss& loss, std::int64_t rows);
  void keep_rows(const Batch& outputs, const Batch& batch);
  void move_to_host();
  std::vector<std::string> names_of_all() const;
  at::Tensor gathered(const std::string& name);

  Trainer& trainer_;
  Trainer::Impl& impl_;
  std::string prefix_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  /// Sum of losses, sum of weights, whether there is a loss.
  at::Tensor sums_;
  std::optional<at::ScalarType> type_;
  std::int64_t samples_ = 0;
  std::int64_t batches_ = 0;
  std::map<std::string, std::vector<at::Tensor>> kept_;
  std::vector<std::int64_t> indices_;
};

}  // namespace lockstep
