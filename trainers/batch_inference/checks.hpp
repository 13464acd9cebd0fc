#pragma once

#include "lockstep/datasets/arrow_dataset.hpp"
#include "options.hpp"

// What some worker would find out in the middle of the work is found out before it begins.

/// The rows of --data. *Local*. Throws DataError for a file that cannot be read or has no rows, UsageError
/// where there is no such column.
lockstep::ArrowDataset load_rows(const Options& options);

/// Reads the model's configuration and the tokenizer. *Local*. Throws UsageError for a model that cannot do
/// the task or has no tokenizer, DataError for one of another kind and for a tokenizer that knows more tokens
/// than the model.
void check_model(const Options& options);
