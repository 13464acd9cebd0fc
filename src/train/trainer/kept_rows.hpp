#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/data/batch.hpp"
#include "lockstep/train/accelerator.hpp"

namespace lockstep::train {

/// Tensors of an evaluation's batches, row for row, to be gathered from all ranks at its end.
class KeptRows {
 public:
  explicit KeptRows(Accelerator accelerator) : accelerator_(std::move(accelerator)) {}

  /// Keeps those that have `rows` rows. *Local*.
  void add(const Batch& tensors, std::int64_t rows);
  /// What was added since the last time is copied to the host. *Local*.
  void move_to_host();
  /// All ranks' rows in that order, on the host. Rows that differ in dimension 1 are filled up with -100.
  /// *Collective*.
  Batch gathered(const at::Tensor& order);

 private:
  std::vector<std::string> names_of_all() const;
  at::Tensor gathered(const std::string& name);

  Accelerator accelerator_;
  std::map<std::string, std::vector<at::Tensor>> kept_;
};

}  // namespace lockstep::train
