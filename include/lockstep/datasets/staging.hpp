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

// Copies of data on a node's own disk. Without LibTorch and without other ranks: see
// lockstep/datasets/stage.hpp for what a program calls.

/// A file that is to be copied.
struct StagedFile {
  /// Its place below the source, and below the copy.
  std::filesystem::path path;
  std::uint64_t bytes = 0;
  /// Its CRC-32C where the source's own list has one.
  std::optional<std::uint32_t> crc32c;
  /// When it was last changed, in nanoseconds since 1970: for sources without checksums.
  std::int64_t changed = 0;
};

/// The files that make up a data set, and no others.
struct StagingPlan {
  std::filesystem::path source;
  std::vector<StagedFile> files;

  std::uint64_t bytes() const;
};

/// Finds out which files belong to `source`:
///
/// - an entry of map's cache (`manifest.json`): the shards that its manifest names, with their checksums;
/// - what `save_to_disk` has written (`state.json`): the files in its "_data_files", state.json and
///   dataset_info.json; for a DatasetDict (`dataset_dict.json`) that file and each of its "splits";
/// - one file: that file;
/// - any other folder: all its files, but only with `all`, for nobody can tell what belongs to the data.
///
/// Throws DataError, naming the file, when a list names what is not there, leads out of its folder, or cannot
/// be read, and for an unfinished cache entry; UsageError for a folder that has no list without `all`.
/// *Local*.
StagingPlan plan_staging(const std::filesystem::path& source, bool all = false);

struct StagingOptions {
  /// Files that are copied at once; 0: available_cpus(), at least 4 and at most 16, for most of the time is
  /// spent waiting for the source.
  int threads = 0;
  /// Reads each copy again and compares it with the source's checksum.
  bool verify = true;
  /// Room that is to stay free on the destination's disk, in bytes.
  std::uint64_t reserve = 0;
  /// Asked several times a second; true ends the copying, and Error is thrown. None: it goes on.
  std::function<bool()> stop = {};
  /// Told, from the calling thread, how many bytes are there.
  std::function<void(std::uint64_t bytes)> progress = {};
};

/// What stage_files() has done.
struct StagingResult {
  /// Where the data are now: the destination, or the source when they do not fit.
  std::filesystem::path folder;
  /// False: they were there already, or stay where they are.
  bool copied = false;
  /// Not empty when they stay where they are: why.
  std::string warning;
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
  double seconds = 0.0;
};

/// Copies the files of a plan so that `destination` (a folder; a file's copy lies in it) appears whole or not
/// at all. Files are copied by copy_file_range where the file systems can, several at a time, compared with
/// their sizes and checksums, and brought into place by one rename of their folder. The folder holds
/// `.lockstep-staged.json`, which says what it is a copy of: a second call finds that all is there and copies
/// nothing; a folder that is another data's copy is replaced, one that is no copy is refused.
///
/// Of several processes that stage to one destination one copies and the others wait for it: by a Lease in
/// `<destination>.staging`, where the copies are made. A process that is killed leaves that folder, which the
/// next one takes over and empties; any other end removes it.
///
/// When the disk has too little room nothing is copied and `warning` says so. Throws UsageError for a
/// destination that is no copy; DataError when the source changes meanwhile or a copy differs; Error when
/// the disk fails, and as make_staging_parent(). *Local*.
StagingResult stage_files(const StagingPlan& plan, const std::filesystem::path& destination,
                          const StagingOptions& options = {});

/// Where `source` is copied to unless somebody says otherwise: `lockstep-<user id>/<its name>-<8 digits that
/// stand for its path>` in $SLURM_TMPDIR, else $TMPDIR, else /tmp. The same for all processes of a node.
std::filesystem::path default_staging_folder(const std::filesystem::path& source,
                                             const Environment& environment);

/// Makes the folder in which `destination` is to appear, with all above it. The folder `lockstep-<user id>`,
/// where the way leads through it, is this user's alone (mode 0700): in /tmp anybody could have made it
/// before, and put files of his own where a staged copy is looked for. Throws Error, naming owner and mode,
/// for one that is not. *Local*.
void make_staging_parent(const std::filesystem::path& destination);

/// One line for people: "staged 12 files, 3.4 GiB in 2.1 s (1.6 GiB/s) to /tmp/x".
std::string staging_text(const StagingResult& result);

}  // namespace lockstep
