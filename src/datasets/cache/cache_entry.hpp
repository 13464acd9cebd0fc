#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// One computed result in a cache folder, as stored on disk:
//
//     <cache>/<key>/manifest.json                                       what it is, see CacheManifest
//                   shard-00012.rows-1000.crc32c-1a2b3c4d.arrow         a finished shard
//                   lease.<n>                                           a process is writing it: Lease
//                   use.<host>.<pid>.<n>                                a process is reading it: CacheUse
//                   .work-*                                             unfinished files of a writer
//
// A shard is written under `.work-*`, flushed to disk and renamed: a shard with its final name is complete,
// and the name contains all that the manifest will list. An interrupted computation therefore resumes with
// the shards that are there.

/// A finished shard.
struct CachedShard {
  /// Its number in the result, from 0.
  std::uint64_t number = 0;
  std::uint64_t rows = 0;
  std::uint32_t crc32c = 0;
  /// Size of the file.
  std::uint64_t bytes = 0;

  /// The name of its file in the entry's folder.
  std::string file_name() const;
};

/// Parses the name of a shard's file; `bytes` is 0. Nothing for other names.
std::optional<CachedShard> parse_shard_name(const std::string& name);

/// Description of an entry. Written without `complete` when the computation begins, and with it at the end.
struct CacheManifest {
  /// The folder's name: 32 hexadecimal digits, a hash of `fields`.
  std::string key;
  /// The program's name for the computation.
  std::string name;
  /// All that determines the result: "parameters.max_length" -> "128". Values are JSON texts.
  std::map<std::string, std::string> fields;
  /// When the computation began or ended: UTC, as in "2026-11-21T19:30:00Z".
  std::string time;
  bool complete = false;
  /// Number of shards of the whole result.
  std::uint64_t shard_count = 0;
  /// Duration of the computation, counted from the last interruption.
  double seconds = 0.0;
  /// All shards, in order; only if complete.
  std::vector<CachedShard> shards;

  std::uint64_t rows() const;
  std::uint64_t bytes() const;
};

/// Converts to JSON text, and back; `path` is the file's name in errors. Throws DataError, naming the file
/// and the problem, if the text is not a manifest of this version.
std::string manifest_text(const CacheManifest& manifest);
CacheManifest parse_manifest(const std::string& text, const std::string& path);

/// Reads `<entry>/manifest.json`; nothing if it does not exist. Throws DataError as parse_manifest().
/// *Local*.
std::optional<CacheManifest> read_manifest(const std::filesystem::path& entry);
/// Writes the manifest, completely or not at all. Throws Error. *Local*.
void write_manifest(const std::filesystem::path& entry, const CacheManifest& manifest);

/// The finished shards in an entry's folder, by number, with their file sizes. Empty if the folder does not
/// exist. *Local*.
std::map<std::uint64_t, CachedShard> finished_shards(const std::filesystem::path& entry);

/// The current time in the format of manifests.
std::string utc_time_text();

}  // namespace lockstep
