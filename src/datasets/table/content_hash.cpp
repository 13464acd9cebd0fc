#include "datasets/table/content_hash.hpp"

#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "core/input_file.hpp"
#include "core/json_text.hpp"
#include "datasets/cache/cache_folder.hpp"
#include "datasets/cache/file_stamp.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"

// The whole library, in this file only.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace lockstep::table {

struct ContentHash::State {
  XXH3_state_t hash;
};

ContentHash::ContentHash() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->hash); }
ContentHash::~ContentHash() = default;

void ContentHash::update(const void* data, std::size_t bytes) noexcept {
  if (bytes > 0) XXH3_128bits_update(&state_->hash, data, bytes);
}

void ContentHash::update_field(std::string_view text) noexcept {
  update_number(text.size());
  update(text);
}

std::string ContentHash::text() const {
  const XXH128_hash_t value = XXH3_128bits_digest(&state_->hash);
  return fmt::format("{:016x}{:016x}", value.high64, value.low64);
}

std::string content_hash(std::string_view bytes) {
  ContentHash hash;
  hash.update(bytes);
  return hash.text();
}

}  // namespace lockstep::table

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using table::content_hash;
using table::ContentHash;

constexpr char kFolder[] = "hashes";
constexpr std::uint64_t kLargestNote = 1 << 16;
/// From linux/magic.h.
constexpr long kTmpfs = 0x01021994;
constexpr long kRamfs = 0x858458f6;
/// Older notes are removed. A file that still exists gets a new one.
constexpr std::chrono::days kForgotten{90};

std::int64_t nanoseconds(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

std::int64_t now() {
  timespec time{};
  ::clock_gettime(CLOCK_REALTIME, &time);
  return nanoseconds(time);
}

/// Null for files on a tmpfs, which are always read.
std::optional<struct stat> status_of(const fs::path& path) {
  struct stat status {};
  struct statfs system {};
  if (::stat(path.c_str(), &status) < 0 || ::statfs(path.c_str(), &system) < 0) return std::nullopt;
  if (system.f_type == kTmpfs || system.f_type == kRamfs) return std::nullopt;
  return status;
}

Json note_of(const fs::path& path, const struct stat& status) {
  return {{"path", utf8_text(path.string())}, {"device", status.st_dev}, {"version", file_stamp(status)}};
}

std::optional<std::string> read_note(const fs::path& note_path, const Json& note) {
  std::error_code failure;
  if (!fs::exists(note_path, failure)) return std::nullopt;
  try {
    InputFile file(note_path);
    std::string text(static_cast<std::size_t>(std::min(file.size(), kLargestNote)), '\0');
    file.read(text.data(), text.size());
    Json found = Json::parse(text);
    auto hash = found.at("hash").get<std::string>();
    found.erase("hash");
    return found == note ? std::optional(hash) : std::nullopt;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

void forget_old(const fs::path& folder) {
  std::error_code failure;
  for (const auto& each : fs::directory_iterator(folder, failure)) {
    std::error_code gone;
    const auto age = fs::file_time_type::clock::now() - each.last_write_time(gone);
    if (!gone && age > kForgotten) fs::remove(each.path(), gone);
  }
}

/// Written atomically, but not flushed to disk: a note that a crash has damaged is ignored.
void write_note(const fs::path& note_path, const std::string& text) {
  static std::atomic<std::uint64_t> count{0};
  const fs::path aside = fmt::format("{}.{}-{}", note_path.string(), ::getpid(), count++);
  std::ofstream file(aside, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  std::error_code failure;
  if (file) fs::rename(aside, note_path, failure);
  if (!file || failure) fs::remove(aside, failure);
}

/// Errors are ignored: the file is then read again next time.
void remember(const fs::path& note_path, Json note, const std::string& hash) {
  note["hash"] = hash;
  std::error_code failure;
  fs::create_directories(note_path.parent_path(), failure);
  if (failure) return;
  write_note(note_path, json_text(note) + "\n");
  static std::once_flag once;
  std::call_once(once, forget_old, note_path.parent_path());
}

std::string hash_of(const arrow_file::MappedFile& file) { return content_hash(file.text()); }

std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& each : fs::recursive_directory_iterator(folder)) {
    if (each.is_regular_file()) files.push_back(each.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

HashMemory::HashMemory(fs::path cache, HashMemoryOptions options)
    : folder_(cache.empty() ? fs::path() : cache / kFolder), options_(options) {}

std::string HashMemory::of(const arrow_file::MappedFile& file) const {
  const std::int64_t begin = now();
  std::error_code failure;
  const fs::path path = fs::absolute(file.path(), failure);
  const auto status =
      folder_.empty() || file.text().size() < options_.least_bytes ? std::nullopt : status_of(path);
  // The path may now refer to another file, or the file may have grown.
  const bool same = status && file.is_inode(status->st_dev, status->st_ino) && status->st_size == file.size();
  if (!same) return hash_of(file);
  const Json note = note_of(path, *status);
  const fs::path note_path = folder_ / content_hash(path.string() + '\0' + std::to_string(status->st_dev));
  if (auto hash = read_note(note_path, note)) return *hash;
  const std::string hash = hash_of(file);
  const auto changed = std::max(nanoseconds(status->st_mtim), nanoseconds(status->st_ctim));
  const auto after = status_of(path);
  if (changed + options_.settled.count() < begin && after && note_of(path, *after) == note)
    remember(note_path, note, hash);
  return hash;
}

std::string HashMemory::of(const fs::path& path) const {
  if (fs::is_directory(path)) return of_folder(path);
  return of(arrow_file::MappedFile(path));
}

std::string HashMemory::of_folder(const fs::path& folder) const {
  ContentHash hash;
  for (const auto& file : files_below(folder)) {
    hash.update_field(file.lexically_relative(folder).string());
    hash.update_field(of(arrow_file::MappedFile(file)));
  }
  return hash.text();
}

HashMemory default_hash_memory() {
  try {
    return HashMemory(default_cache_folder(process_environment()));
  } catch (const UsageError&) {
    return HashMemory(fs::path());
  }
}

}  // namespace lockstep
