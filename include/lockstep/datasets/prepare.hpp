#pragma once

#include <filesystem>
#include <vector>

#include "lockstep/core/environment.hpp"

namespace lockstep {

/// The variables that `lockstep prepare` sets: that a program prepares, and the file in which map() lists the
/// cache entries that it made or found, for `lockstep stage --list`.
inline constexpr char kPrepareVariable[] = "LOCKSTEP_PREPARE";
inline constexpr char kPreparedListVariable[] = "LOCKSTEP_PREPARED_LIST";

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
/// whatever a scheduler or a launcher says, without the variables of a job's session place and of a
/// launcher's (MASTER_*, TORCHELASTIC_*, LOCKSTEP_JOB_TOKEN), and with LOCKSTEP_PREPARE=1. *Local*.
Environment preparing_environment(const Environment& parent);

/// Adds the folder of a cache entry to the list, one a line, where there is a list. Throws Error when it
/// cannot be written. *Local*.
void note_prepared(const Environment& environment, const std::filesystem::path& entry);

/// What such a list names, each once, in order. Throws DataError when it cannot be read or names nothing.
std::vector<std::filesystem::path> read_prepared_list(const std::filesystem::path& list);

}  // namespace lockstep
