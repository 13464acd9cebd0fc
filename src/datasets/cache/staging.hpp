#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/environment.hpp"

namespace lockstep {

// Copies of data on a node's local disk. Independent of LibTorch and of other ranks; programs call
// lockstep/datasets/stage.hpp.

/// A file to copy.
struct StagedFile {
  /// Its path relative to the source, and to the copy.
  std::filesystem::path path;
  std::uint64_t bytes = 0;
  /// Its CRC-32C, if the source's own list has one.
  std::optional<std::uint32_t> crc32c;
  /// Its inode, size, mtime and ctime in nanoseconds, as text: for sources without checksums.
  std::string version;
};

/// Exactly the files that make up a data set.
struct StagingPlan {
  std::filesystem::path source;
  std::vector<StagedFile> files;
  /// `source` is the folder of the one file that was named, and not itself the data.
  bool of_one_file = false;

  std::uint64_t bytes() const;
};

/// Determines which files belong to `source`:
///
/// - an entry of map's cache (`manifest.json`): the shards that its manifest names, with their checksums;
/// - a folder of `save_to_disk` (`state.json`): the files in its "_data_files", state.json and
///   dataset_info.json; for a DatasetDict (`dataset_dict.json`) that file and each of its "splits";
/// - one file: that file;
/// - any other folder: all its files, but only with `all`, because nothing tells which belong to the data.
///
/// Throws DataError, naming the file, if a list names a missing file, leads out of its folder or cannot be
/// read, and for an unfinished cache entry; UsageError for a folder without a list unless `all` is set.
/// *Local*.
StagingPlan plan_staging(const std::filesystem::path& source, bool all = false);

struct StagingOptions {
  /// Number of files copied at a time; 0: available_cpus(), at least 4 and at most 16, because copying mostly
  /// waits for the source.
  int threads = 0;
  /// Read each copy back and compare it with the source's checksum.
  bool verify = true;
  /// Space to keep free on the destination's disk, in bytes.
  std::uint64_t reserve = 0;
  /// Called several times a second; if it returns true, copying ends and Error is thrown. Not set: never.
  std::function<bool()> stop = {};
  /// Called on the calling thread with the number of bytes copied so far.
  std::function<void(std::uint64_t bytes)> progress = {};
};

/// The result of stage_files().
struct StagingResult {
  /// The location of the data: the destination, or the source if there is too little space.
  std::filesystem::path folder;
  /// False if the files were already there, or stay in the source.
  bool copied = false;
  /// The reason if the data stay in the source; otherwise empty.
  std::string warning;
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
  double seconds = 0.0;
};

/// Copies the files of a plan so that `destination` (a folder, also for a single file) appears completely or
/// not at all. Files are copied several at a time, with copy_file_range if the file systems support it,
/// verified by size and checksum, and put in place by one rename of their folder. The folder contains
/// `.lockstep-staged.json`, which describes its source: a second call finds the copy and copies nothing. A
/// folder that is a copy of other data is replaced; one that is not a copy is rejected.
///
/// If several processes stage to one destination, one copies and the others wait for it: by a Lease in
/// `<destination>.staging`, where the copies are made. A process that is killed leaves that folder behind,
/// and the next one takes it over and empties it; otherwise it is removed.
///
/// If the disk has too little space, nothing is copied and `warning` gives the reason. Throws UsageError for
/// a destination that is not a copy; DataError if the source changes meanwhile or a copy differs; Error if
/// the disk fails, and as make_staging_parent(). *Local*.
StagingResult stage_files(const StagingPlan& plan, const std::filesystem::path& destination,
                          const StagingOptions& options = {});

/// The default destination of `source`: `lockstep-<user id>/<its name>-<8 digits, a hash of its path>` in
/// $SLURM_TMPDIR, otherwise $TMPDIR, otherwise /tmp. The same for all processes of a node.
std::filesystem::path default_staging_folder(const std::filesystem::path& source,
                                             const Environment& environment);

/// Creates the parent folder of `destination` and all folders above it. A folder `lockstep-<user id>` on the
/// path belongs to this user alone (mode 0700): in /tmp anyone could have created it before, with files in
/// the place of a staged copy. Throws Error, naming owner and mode, if it does not. *Local*.
void make_staging_parent(const std::filesystem::path& destination);

/// One human-readable line: "staged 12 files, 3.4 GiB in 2.1 s (1.6 GiB/s) to /tmp/x".
std::string staging_text(const StagingResult& result);

}  // namespace lockstep
