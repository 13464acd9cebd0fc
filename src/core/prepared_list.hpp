#pragma once

#include <filesystem>
#include <vector>

#include "lockstep/core/environment.hpp"

// How `lockstep prepare` and the program that it starts agree on what is prepared.
namespace lockstep {

/// The variables that `lockstep prepare` sets: that a program should prepare, and the file in which map()
/// lists the cache entries that it created or found, for `lockstep stage --list`.
inline constexpr char kPrepareVariable[] = "LOCKSTEP_PREPARE";
inline constexpr char kPreparedListVariable[] = "LOCKSTEP_PREPARED_LIST";

/// The environment of a program that prepares: `parent` as a world of one rank (RANK=0, WORLD_SIZE=1, ...),
/// whatever a scheduler or launcher says, and LOCKSTEP_PREPARE=1. Variables of a launcher and of the job's
/// rendezvous (MASTER_*, TORCHELASTIC_*, GROUP_*, ROLE_*, LOCKSTEP_JOB_TOKEN) are removed. *Local*.
Environment preparing_environment(const Environment& parent);

/// Appends the folder of a cache entry to the list, one per line, if there is a list. Throws Error if it
/// cannot be written. *Local*.
void note_prepared(const Environment& environment, const std::filesystem::path& entry);

/// The entries of such a list, each once, in order. Throws DataError if it cannot be read or is empty.
std::vector<std::filesystem::path> read_prepared_list(const std::filesystem::path& list);

}  // namespace lockstep
