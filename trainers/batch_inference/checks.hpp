#pragma once

#include "lockstep/datasets/arrow_dataset.hpp"
#include "options.hpp"

// Checks before the work begins, so that no worker fails in the middle of it.

/// The rows of --data. *Local*. Throws DataError if the file cannot be read or has no rows, UsageError if it
/// has no such column.
lockstep::ArrowDataset load_rows(const Options& options);

/// Reads the model's configuration, the settings of generate() and the tokenizer. *Local*. Throws UsageError
/// if the model cannot do the task or has no tokenizer, DataError for a model of another kind and for a
/// tokenizer with more tokens than the model, and what generation_of() throws.
void check_model(const Options& options);
