#pragma once

#include "lockstep/core/environment.hpp"

namespace lockstep {

/// The variable that `lockstep prepare` sets.
inline constexpr char kPrepareVariable[] = "LOCKSTEP_PREPARE";

/// Whether this program was started by `lockstep prepare`: it is to load and map its data, which puts the
/// results into the cache, and to end before it trains.
///
///     const ArrowDataset train = map(ArrowDataset::load(folder), tokenize, options);
///     if (preparing(process_environment())) return 0;
///     train_on(train);
///
/// True where LOCKSTEP_PREPARE is set to anything but "", "0" and "false". *Local*.
bool preparing(const Environment& environment);

/// The environment of a program that prepares: `parent` as a world of one (RANK=0, WORLD_SIZE=1, ...), for
/// whatever a scheduler or a launcher says, without the variables of a job's meeting place and of a
/// launcher's (MASTER_*, TORCHELASTIC_*, LOCKSTEP_JOB_TOKEN), and with LOCKSTEP_PREPARE=1. *Local*.
Environment preparing_environment(const Environment& parent);

}  // namespace lockstep
