#pragma once

#include <cstdint>
#include <filesystem>

#include "lockstep/datasets/arrow_dataset.hpp"
#include "lockstep/datasets/distributed_context.hpp"

namespace lockstep {

/// How a data set is staged on the nodes.
struct StageOptions {
  /// The ranks of the job, from distributed_context(): on each node local rank 0 copies, and the others wait.
  DistributedContext ranks = {};
  /// Copy every file of a folder that has no list of its files.
  bool all = false;
  /// Number of files copied at a time; 0: available_cpus(), at least 4 and at most 16.
  int threads = 0;
  /// Read each copy back and compare checksums.
  bool verify = true;
  /// Space to keep free on the node's disk, in bytes.
  std::uint64_t reserve = 0;
  /// Local rank 0 prints to standard error what it copied, how long it took, and how fast it was.
  bool report = true;
};

/// Copies the files of `source` (and nothing else) to each node's local disk, once per node, and returns the
/// folder from which this rank should read: `destination`, or `source` if there is too little space, with a
/// line on standard error. Each file is copied under a hidden name, compared with its checksum where the
/// cache knows one, and renamed.
///
///     const auto folder = stage("/scratch/cache/8f3a...", "", {.ranks = distributed_context(world, group)});
///     const auto train = ArrowDataset::load(folder);
///
/// An empty `destination` means a folder in $SLURM_TMPDIR, otherwise $TMPDIR, otherwise
/// /tmp. The copies have the bytes of the source, so ArrowDataset::fingerprint() does not change, and results
/// that were computed from the source are found for the copy too. Files that are already there are not copied
/// again.
///
/// *Collective* over StageOptions::ranks. Ranks wait through the store without a time limit, and log from
/// time to time for whom they wait. Throws DataError and Error, naming the file, on the rank that copies;
/// RemoteError with the same text on all others.
std::filesystem::path stage(const std::filesystem::path& source,
                            const std::filesystem::path& destination = {}, const StageOptions& options = {});

/// Stages a data set and returns it, stored on the node's disk. If it consists of exactly the files that it
/// is mapped from, these are copied. Otherwise (rows were selected, shuffled, filtered, read from text files,
/// or are in memory) save_to_disk writes its rows there in their order: reading is then sequential, and the
/// fingerprint changes. `destination` is a folder in which each data set gets its own folder.
ArrowDataset stage(const ArrowDataset& dataset, const std::filesystem::path& destination = {},
                   const StageOptions& options = {});

}  // namespace lockstep
