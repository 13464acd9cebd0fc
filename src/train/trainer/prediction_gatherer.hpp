#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/batch.hpp"
#include "lockstep/train/accelerator.hpp"

namespace lockstep::train {

/// Collects tensors of an evaluation's batches and gathers their rows from all ranks at the end.
class PredictionGatherer {
 public:
  explicit PredictionGatherer(Accelerator accelerator) : accelerator_(std::move(accelerator)) {}

  /// Adds a batch of `rows` rows. *Local*.
  void add(const Batch& tensors, std::int64_t rows);
  /// Copies the tensors added since the last call to the host. *Local*.
  void move_to_host();
  /// All ranks' rows in this order, on the host, of the tensors that had as many rows as each batch. Rows of
  /// different sizes in dimension 1 are padded with -100, for which unsigned integers become signed ones;
  /// Booleans with false. *Collective*.
  Batch gathered(const at::Tensor& order);

 private:
  std::vector<std::string> names_of_all() const;
  at::Tensor gathered(const std::string& name);

  Accelerator accelerator_;
  std::map<std::string, std::vector<at::Tensor>> kept_;
  std::int64_t rows_ = 0;
};

}  // namespace lockstep::train
