#pragma once

#include "lockstep/core/environment.hpp"

namespace lockstep {

/// Whether this program was started by `lockstep prepare`: it should load and map its data, which puts the
/// results into the cache, and exit before it trains.
///
///     const ArrowDataset train = map(ArrowDataset::load(folder), tokenize, options);
///     if (preparing(process_environment())) return 0;
///     train_on(train);
///
/// True if LOCKSTEP_PREPARE is set to anything but "", "0" and "false". *Local*.
bool preparing(const Environment& environment);

}  // namespace lockstep
