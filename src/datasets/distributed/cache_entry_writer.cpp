#include "datasets/distributed/cache_entry_writer.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <numeric>
#include <system_error>

#include "core/checksum.hpp"
#include "core/file_system.hpp"
#include "datasets/cache/cache_folder.hpp"
#include "datasets/cache/file_stamp.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "net/file_descriptor.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using file_system::reason;
using file_system::uninterrupted;

constexpr char kWorkPrefix[] = ".work-";
/// The stamps_text() of the shards when their checksums were last correct.
constexpr char kChecked[] = "checked";

void rename_into_place(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return;
  const int error = errno;
  throw Error("cannot rename a file to '" + to.string() + "': " + reason(error) +
              (error == ENOENT ? ". Was the entry removed meanwhile?" : "."));
}

void sync_file(const fs::path& path) {
  const net::FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file && uninterrupted([&] { return ::fsync(file.get()); }) == 0) return;
  const int error = errno;
  throw Error("cannot flush '" + path.string() + "' to disk: " + reason(error) + ".");
}

bool has_sizes(const fs::path& entry, const CacheManifest& manifest) {
  for (const auto& shard : manifest.shards) {
    std::error_code failure;
    if (fs::file_size(entry / shard.file_name(), failure) != shard.bytes || failure) return false;
  }
  return true;
}

/// An unreadable manifest counts as missing: the entry is computed again.
std::optional<CacheManifest> manifest_or_none(const fs::path& entry) {
  try {
    return read_manifest(entry);
  } catch (const DataError&) {
    return std::nullopt;
  }
}

/// Identifies a version of the shards' files.
std::string stamps_text(const fs::path& entry, const CacheManifest& manifest) {
  std::string text;
  for (const auto& shard : manifest.shards) {
    struct stat status {};
    const fs::path file = entry / shard.file_name();
    if (::stat(file.c_str(), &status) < 0) continue;
    text += fmt::format("{} {}\n", shard.file_name(), file_stamp(status));
  }
  return text;
}

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// Whether the file has the checksum in its name; false if it cannot be read.
bool has_checksum(const fs::path& file, const CachedShard& shard) {
  try {
    return digest_of(file).crc32c == shard.crc32c;
  } catch (const Error&) {
    return false;
  }
}

void remove_unfinished(const fs::path& entry, bool shards_too) {
  std::error_code failure;
  for (const auto& each : fs::directory_iterator(entry, failure)) {
    const std::string name = each.path().filename();
    const bool goes = name.starts_with(kWorkPrefix) || (shards_too && parse_shard_name(name));
    std::error_code ignored;
    if (goes) fs::remove_all(each.path(), ignored);
  }
}

/// A process that was killed in align() has left a shard in two versions, of which one is out of date.
void remove_twins(const fs::path& entry) {
  std::map<std::uint64_t, fs::path> seen;
  std::error_code ignored;
  for (const auto& each : fs::directory_iterator(entry, ignored)) {
    const auto shard = parse_shard_name(each.path().filename());
    if (!shard) continue;
    const auto [other, fresh] = seen.emplace(shard->number, each.path());
    if (fresh) continue;
    fs::remove(other->second, ignored);
    fs::remove(each.path(), ignored);
  }
}

}  // namespace

CacheEntryWriter::CacheEntryWriter(const ShardedWork& work, fs::path entry, std::uint64_t limit, bool leads)
    : work_(work), entry_(std::move(entry)), limit_(limit), leads_(leads) {}

std::optional<CacheManifest> CacheEntryWriter::complete_manifest() const {
  auto manifest = manifest_or_none(entry_);
  const bool complete = manifest && manifest->complete && manifest->shards.size() == work_.tasks.size() &&
                        has_sizes(entry_, *manifest);
  return complete ? std::move(manifest) : std::nullopt;
}

bool CacheEntryWriter::is_sound(bool remove) {
  const auto manifest = complete_manifest();
  if (!manifest) return false;
  // In a read-only cache the result could not be recorded, so every call would read everything: the cache is
  // trusted.
  if (::access(entry_.c_str(), W_OK) < 0) return true;
  const std::string stamps = stamps_text(entry_, *manifest);
  if (read_text(entry_ / kChecked) == stamps) return true;
  if (!remove && stamps == damaged_) return false;
  bool sound = true;
  for (const auto& shard : manifest->shards) {
    const fs::path file = entry_ / shard.file_name();
    if (has_checksum(file, shard)) continue;
    if (!remove) {
      damaged_ = stamps;
      return false;
    }
    sound = false;
    std::cerr << fmt::format(
                     "lockstep: {}: '{}' is damaged (its bytes do not have the checksum of its name): the "
                     "result is computed again\n",
                     work_.what, file.string())
              << std::flush;
    std::error_code ignored;
    fs::remove(file, ignored);
  }
  if (sound) note_checked(*manifest);
  return sound;
}

void CacheEntryWriter::note_checked(const CacheManifest& manifest) const {
  try {
    write_atomically(entry_ / kChecked, stamps_text(entry_, manifest));
  } catch (const Error&) {
    // The shards are read again next time.
  }
}

void CacheEntryWriter::begin(bool anew) const {
  const auto before = manifest_or_none(entry_);
  // If files of a complete entry are missing or have another size, its other files are not trusted either.
  remove_unfinished(entry_, anew || (before && before->complete));
  remove_twins(entry_);
  CacheManifest manifest = work_.manifest;
  manifest.time = utc_time_text();
  manifest.shard_count = work_.tasks.size();
  write_manifest(entry_, manifest);
}

void CacheEntryWriter::remove_if_empty() const {
  if (!finished_shards(entry_).empty()) return;
  std::error_code ignored;
  for (const char* name : {"manifest.json", kChecked}) fs::remove(entry_ / name, ignored);
}

std::vector<std::size_t> CacheEntryWriter::missing() const {
  const auto finished = finished_shards(entry_);
  std::vector<std::size_t> indices;
  for (std::size_t index = 0; index < work_.tasks.size(); ++index) {
    if (!finished.contains(work_.tasks[index].number)) indices.push_back(index);
  }
  return indices;
}

std::int64_t CacheEntryWriter::rows_done() const {
  const auto finished = finished_shards(entry_);
  return std::accumulate(work_.tasks.begin(), work_.tasks.end(), std::int64_t{0},
                         [&](std::int64_t sum, const ShardTask& task) {
                           return sum + (finished.contains(task.number) ? task.rows : 0);
                         });
}

WorkFolder::WorkFolder(const fs::path& entry, const Worker& worker)
    : path_(entry / fmt::format("{}{}-{}", kWorkPrefix, worker.rank, getpid())) {
  std::error_code failure;
  fs::create_directory(path_, failure);
  if (failure) throw Error("cannot make the folder '" + path_.string() + "': " + failure.message() + ".");
}

WorkFolder::~WorkFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void CacheEntryWriter::align(const Worker& worker) {
  if (!work_.align) return;
  std::vector<fs::path> files;
  for (const auto& [number, shard] : finished_shards(entry_)) files.push_back(entry_ / shard.file_name());
  if (files.size() != work_.tasks.size()) return;
  const WorkFolder folder(entry_, worker);
  const auto replace = [&](std::size_t index, const std::function<std::uint64_t(const fs::path&)>& write) {
    const auto& task = work_.tasks[index];
    const fs::path file = folder.file_of(task);
    commit(task, file, write(file));
    std::error_code ignored;
    fs::remove(files[index], ignored);
  };
  try {
    work_.align(files, replace);
  } catch (const UsageError&) {
    // They are computed again by the next run, presumably with a corrected function.
    remove_unfinished(entry_, true);
    throw;
  }
}

void CacheEntryWriter::commit(const ShardTask& task, const fs::path& file, std::uint64_t rows) {
  sync_file(file);
  const FileDigest digest = digest_of(file);
  const CachedShard shard{.number = task.number, .rows = rows, .crc32c = digest.crc32c};
  // The name need not be on disk before the manifest is: if the machine fails, at most shards are lost.
  rename_into_place(file, entry_ / shard.file_name());
  if (!checked_.exchange(true)) check_room(task, digest.bytes);
}

void CacheEntryWriter::check_room(const ShardTask& task, std::uint64_t bytes) {
  std::int64_t left = -rows_done();
  for (const auto& each : work_.tasks) left += each.rows;
  const double each_row = static_cast<double>(bytes) / static_cast<double>(task.rows);
  const auto needed =
      static_cast<std::uint64_t>(each_row * static_cast<double>(std::max<std::int64_t>(left, 0)));
  if (leads_) evict(entry_.parent_path(), limit_, needed, work_.manifest.key);
  struct statvfs disk {};
  if (::statvfs(entry_.c_str(), &disk) < 0) return;
  const auto room = static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize;
  if (needed <= room) return;
  throw Error(fmt::format(
      "{}: the rest of the result needs about {} bytes, estimated from its first part, but the disk "
      "under '{}' has only {} left. Make room ('lockstep cache clear'), or set LOCKSTEP_CACHE to "
      "a folder elsewhere; what was computed so far is kept.",
      work_.what, needed, entry_.parent_path().string(), room));
}

void CacheEntryWriter::finish(double seconds) const {
  CacheManifest manifest = work_.manifest;
  manifest.time = utc_time_text();
  manifest.complete = true;
  manifest.shard_count = work_.tasks.size();
  manifest.seconds = seconds;
  for (const auto& [number, shard] : finished_shards(entry_)) manifest.shards.push_back(shard);
  if (manifest.shards.size() != work_.tasks.size()) {
    throw Error(
        fmt::format("{}: expected {} shards in '{}', found {}. Was something removed meanwhile? Run it "
                    "again: what is there is kept.",
                    work_.what, work_.tasks.size(), entry_.string(), manifest.shards.size()));
  }
  // commit() computed each checksum from the file.
  note_checked(manifest);
  write_manifest(entry_, manifest);
}

}  // namespace lockstep
