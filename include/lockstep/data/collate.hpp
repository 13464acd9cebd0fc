#pragma once

#include <functional>
#include <vector>

#include "lockstep/data/batch.hpp"

namespace lockstep {

/// How samples become a batch. Called from several worker threads at once, so it must not change shared
/// state.
using CollateFunction = std::function<Batch(std::vector<Example>)>;

/// Stacks the samples by name: tensors of shape [d...] become one of shape [samples, d...], names in the
/// order of the first sample, and the samples' `indices` one after another. *Local*; safe from several
/// threads. Throws DataError, naming the sample (by its data-set index where the sample knows it, else by its
/// place) and both sides, when a sample's names, shape, dtype or device differ from the first sample's;
/// UsageError without samples.
Batch default_collate(std::vector<Example> examples);

}  // namespace lockstep
