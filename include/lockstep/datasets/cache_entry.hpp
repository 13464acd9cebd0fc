#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// One computed result in a cache folder, as it lies on the disk:
//
//     <cache>/<key>/manifest.json                                       what it is, see CacheManifest
//                   shard-00012.rows-1000.crc32c-1a2b3c4d.arrow         a finished shard
//                   lease.<n>                                           somebody writes it now: Lease
//                   use.<host>.<pid>                                    somebody reads it now: CacheUse
//                   .work-*                                             what a writer has not finished yet
//
// A shard is written under `.work-*`, brought to the disk and renamed: under its name it is whole, and its
// name tells all that the manifest will say of it. So an interrupted computation goes on with what is there.

/// A finished shard.
struct CachedShard {
  /// Its place in the result, from 0.
  std::uint64_t number = 0;
  std::uint64_t rows = 0;
  std::uint32_t crc32c = 0;
  /// Of the file.
  std::uint64_t bytes = 0;

  /// Its file's name in the folder of the entry.
  std::string file_name() const;
};

/// The shard of such a file name; its `bytes` are 0. Nothing for any other name.
std::optional<CachedShard> parse_shard_name(const std::string& name);

/// What an entry is. Written without `complete` when the computation begins, and with it when it is done.
struct CacheManifest {
  /// The folder's name: 32 hexadecimal digits that stand for `fields`.
  std::string key;
  /// What the program calls the computation.
  std::string name;
  /// What decides about the result, and nothing else: "parameters.max_length" -> "128". Values are JSON
  /// texts.
  std::map<std::string, std::string> fields;
  /// When the computation began or was done: UTC, as in "2026-11-21T19:30:00Z".
  std::string time;
  bool complete = false;
  /// How many shards the whole result has.
  std::uint64_t shard_count = 0;
  /// How long the computation took, with the last interruption as its beginning.
  double seconds = 0.0;
  /// All of them, in order; only in a complete one.
  std::vector<CachedShard> shards;

  std::uint64_t rows() const;
  std::uint64_t bytes() const;
};

/// As JSON text, and back; `place` stands for the file in errors. Throws DataError, naming the file and what
/// is wrong, for text that is no manifest of this version.
std::string manifest_text(const CacheManifest& manifest);
CacheManifest parse_manifest(const std::string& text, const std::string& place);

/// Reads `<entry>/manifest.json`; nothing when there is none. Throws DataError as parse_manifest(). *Local*.
std::optional<CacheManifest> read_manifest(const std::filesystem::path& entry);
/// Writes it, whole or not at all. Throws Error. *Local*.
void write_manifest(const std::filesystem::path& entry, const CacheManifest& manifest);

/// The shards that are finished in the folder of an entry, by number, with the size of their files. Empty
/// when there is no such folder. *Local*.
std::map<std::uint64_t, CachedShard> finished_shards(const std::filesystem::path& entry);

/// Now, as manifests write it.
std::string utc_time_text();

}  // namespace lockstep
