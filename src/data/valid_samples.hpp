#pragma once

#include "lockstep/data/batch.hpp"

namespace lockstep::data {

/// The rows of a tensor that belong to valid samples of `batch`; each sample has `rows` / samples rows. `who`
/// begins the message of the UsageError for a scalar, or for rows that cannot be divided among the samples.
at::Tensor valid_rows(const at::Tensor& tensor, const Batch& batch, const char* who);

/// The batch without the rows that do not count: tensors, texts, indices.
Batch valid_samples(const Batch& batch, const char* who);

/// Whether every row counts.
bool all_valid(const Batch& batch);

}  // namespace lockstep::data
