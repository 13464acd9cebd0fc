#pragma once

#include <cstdint>
#include <filesystem>

#include "lockstep/datasets/arrow_dataset.hpp"
#include "lockstep/datasets/distributed_context.hpp"

namespace lockstep {

/// How a data set is brought to the nodes.
struct StageOptions {
  /// The ranks of the job, from distributed_context(): on each node local rank 0 copies, and the others wait
  /// for it.
  DistributedContext ranks = {};
  /// Every file of a folder that has no list of its files.
  bool all = false;
  /// Files that are copied at once; 0: available_cpus(), at least 4 and at most 16.
  int threads = 0;
  /// Reads each copy again and compares checksums.
  bool verify = true;
  /// Room that is to stay free on the node's disk, in bytes.
  std::uint64_t reserve = 0;
  /// Local rank 0 says on standard error what it copied, how long that took, and how fast it was.
  bool report = true;
};

/// Copies what belongs to `source` (and nothing else) to each node's own disk, once a node, and returns where
/// this rank is to read it: `destination`, or `source` where it does not fit, which is said on standard
/// error. See stage_files() for what is copied and how, and plan_staging() for what belongs to a source.
///
///     const auto folder = stage("/scratch/cache/8f3a...", "", {.ranks = distributed_context(world, group)});
///     const auto train = ArrowDataset::load(folder);
///
/// An empty `destination` is default_staging_folder(): in $SLURM_TMPDIR, else $TMPDIR, else /tmp. The copies
/// have the bytes of the source, so ArrowDataset::fingerprint() stays as it is, and results that were
/// computed from the source are found for the copy too. What is there already is not copied again.
///
/// *Collective* over StageOptions::ranks. Ranks wait through the store, without a time limit, and say now and
/// then for whom. Throws as plan_staging() and stage_files() on the rank that copies; RemoteError, with its
/// words, on all others.
std::filesystem::path stage(const std::filesystem::path& source,
                            const std::filesystem::path& destination = {}, const StageOptions& options = {});

/// The same for a data set, which comes back as it is, lying on the node's disk. Where it is no more than the
/// files that it is mapped from, these are copied. Else (rows were chosen, shuffled, filtered, read from
/// text files, or lie in memory) its rows are written there in their order by save_to_disk: reading them is
/// then sequential, and the fingerprint is another one. `destination` is a folder in which each data set gets
/// a folder of its own.
ArrowDataset stage(const ArrowDataset& dataset, const std::filesystem::path& destination = {},
                   const StageOptions& options = {});

}  // namespace lockstep
