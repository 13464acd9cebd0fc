#include "datasets/cache/cache_folder.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "core/byte_size.hpp"
#include "core/file_system.hpp"
#include "core/json_text.hpp"
#include "core/process_identity.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "use.";
/// How long a mark of another host's process, which may have been killed, counts: longer than most jobs.
constexpr std::chrono::hours kDay{24};

std::optional<ProcessIdentity> reader_of(const fs::path& file) {
  std::ifstream stream(file);
  const auto document = nlohmann::json::parse(stream, nullptr, false);
  try {
    return document.get<ProcessIdentity>();
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

/// Whether the process that wrote a mark is still reading.
bool reads(const fs::path& mark) {
  const auto reader = reader_of(mark);
  const Liveness liveness = reader ? liveness_of(*reader) : Liveness::unknown;
  if (liveness != Liveness::unknown) return liveness == Liveness::alive;
  std::error_code gone;
  const auto time = fs::last_write_time(mark, gone);
  return !gone && fs::file_time_type::clock::now() - time < kDay;
}

/// Whether a process is reading the entry. Removes marks of this host's processes that have ended.
bool is_read(const fs::path& entry) {
  bool found = false;
  std::error_code failure;
  for (const auto& file : fs::directory_iterator(entry, failure)) {
    if (!file.path().filename().string().starts_with(kPrefix)) continue;
    if (reads(file.path())) {
      found = true;
    } else {
      ::unlink(file.path().c_str());
    }
  }
  return found;
}

/// When the entry was last written or opened.
fs::file_time_type last_use_of(const fs::path& entry, std::error_code& failure) {
  // Not the folder's mtime, which changes when marks are added or removed.
  return fs::last_write_time(entry / "manifest.json", failure);
}

/// Sums the sizes of all files below a folder.
std::uint64_t bytes_below(const fs::path& folder) {
  std::uint64_t sum = 0;
  std::error_code failure;
  for (const auto& each : fs::recursive_directory_iterator(folder, failure)) {
    std::error_code gone;
    const auto bytes = each.is_regular_file(gone) ? each.file_size(gone) : 0;
    if (!gone) sum += bytes;
  }
  return sum;
}

std::optional<CacheEntry> read_entry(const fs::path& folder) {
  CacheEntry entry;
  entry.folder = folder;
  try {
    auto manifest = read_manifest(folder);
    if (!manifest) return std::nullopt;
    entry.manifest = std::move(*manifest);
  } catch (const DataError&) {
    return std::nullopt;
  }
  for (const auto& [number, shard] : finished_shards(folder)) entry.rows += shard.rows;
  entry.bytes = bytes_below(folder);
  entry.writer = live_lease(folder);
  entry.read = is_read(folder);
  std::error_code gone;
  entry.last_use = last_use_of(folder, gone);
  return gone ? std::nullopt : std::optional(std::move(entry));
}

std::string value_of(const CacheManifest& manifest, const std::string& field) {
  const auto found = manifest.fields.find(field);
  return found == manifest.fields.end() ? "(none)" : found->second;
}

void describe(const CacheManifest& manifest, std::ostream& out) {
  out << manifest.name << "  " << manifest.key << "\n  " << manifest.time << ", ";
  if (manifest.complete) {
    out << manifest.rows() << " rows, " << manifest.bytes() << " bytes in " << manifest.shards.size()
        << " shards\n";
  } else {
    out << "unfinished\n";
  }
}

}  // namespace

fs::path default_cache_folder(const Environment& environment) {
  const auto variable = [&](const char* name) { return find_variable(environment, name).value_or(""); };
  if (const auto named = variable("LOCKSTEP_CACHE"); !named.empty()) return named;
  if (const auto shared = variable("XDG_CACHE_HOME"); !shared.empty()) return fs::path(shared) / "lockstep";
  if (const auto home = variable("HOME"); !home.empty()) return fs::path(home) / ".cache" / "lockstep";
  throw UsageError("there is no folder for the cache: set LOCKSTEP_CACHE or HOME.");
}

std::uint64_t default_cache_limit(const Environment& environment) {
  const auto text = find_variable(environment, "LOCKSTEP_CACHE_LIMIT");
  if (!text || text->empty()) return 0;
  if (const auto bytes = parse_bytes(*text)) return *bytes;
  throw UsageError(fmt::format(
      "environment variable LOCKSTEP_CACHE_LIMIT='{}': expected a number of bytes, as in 20000000000 or 20G.",
      *text));
}

std::vector<CacheEntry> list_cache(const fs::path& cache) {
  std::vector<CacheEntry> entries;
  std::error_code failure;
  for (const auto& each : fs::directory_iterator(cache, failure)) {
    if (auto entry = read_entry(each.path())) entries.push_back(std::move(*entry));
  }
  std::sort(entries.begin(), entries.end(),
            [](const auto& left, const auto& right) { return left.last_use > right.last_use; });
  return entries;
}

std::string hold_on(const CacheEntry& entry) {
  if (entry.writer) return process_text(entry.writer->process) + " writes it";
  return entry.read ? "a process reads it" : "";
}

void remove_entry(const CacheEntry& entry) {
  const auto refuse = [&](const std::string& hold) {
    throw UsageError(fmt::format("the cache entry {} ({}) is in use: {}. Try again when it has ended.",
                                 entry.manifest.key, entry.manifest.name, hold));
  };
  if (const std::string hold = hold_on(entry); !hold.empty()) refuse(hold);
  const fs::path hidden = file_system::temporary_name(entry.folder);
  std::error_code failure;
  fs::rename(entry.folder, hidden, failure);
  if (failure)
    throw Error(fmt::format("cannot remove the folder '{}': {}.", entry.folder.string(), failure.message()));
  // A process that began to use the entry since the check above left a mark before opening its files: the
  // entry is put back, or, if a new entry has its name by now, stays under the hidden name. Later ones find
  // no entry.
  if (is_read(hidden) || live_lease(hidden)) {
    fs::rename(hidden, entry.folder, failure);
    refuse("a process has just begun to use it");
  }
  fs::remove_all(hidden, failure);
  if (failure)
    throw Error(fmt::format("cannot remove the folder '{}': {}.", hidden.string(), failure.message()));
}

std::vector<std::string> evict(const fs::path& cache, std::uint64_t limit, std::uint64_t needed,
                               const std::string& kept) {
  std::vector<std::string> gone;
  if (limit == 0) return gone;
  auto entries = list_cache(cache);
  std::uint64_t sum = needed;
  for (const auto& entry : entries) sum += entry.bytes;
  for (auto entry = entries.rbegin(); entry != entries.rend() && sum > limit; ++entry) {
    if (entry->manifest.key == kept || !hold_on(*entry).empty()) continue;
    try {
      remove_entry(*entry);
    } catch (const Error&) {
      continue;
    }
    sum -= entry->bytes;
    gone.push_back(entry->manifest.key);
  }
  return gone;
}

/// Creates the mark's file; removes it when destroyed.
struct CacheUse::Mark {
  explicit Mark(const fs::path& entry) : creator(getpid()) {
    static std::atomic<unsigned> counter{0};
    const ProcessIdentity self = this_process();
    file = entry / fmt::format("{}{}.{}.{}", kPrefix, self.host, self.pid, counter++);
    std::ofstream(file) << json_text(nlohmann::json(self)) << '\n';
    ::utimensat(AT_FDCWD, (entry / "manifest.json").c_str(), nullptr, 0);
  }
  /// A forked child has a copy of this object, but does not own the file.
  ~Mark() {
    if (getpid() == creator) ::unlink(file.c_str());
  }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;

  fs::path file;
  pid_t creator;
};

CacheUse::CacheUse(const fs::path& entry) : mark_(std::make_shared<Mark>(entry)) {}

std::vector<std::string> changed_fields(const CacheManifest& before, const CacheManifest& after) {
  std::set<std::string> names;
  for (const auto* each : {&before, &after}) {
    for (const auto& [name, value] : each->fields) names.insert(name);
  }
  std::vector<std::string> lines;
  for (const auto& name : names) {
    const std::string old_value = value_of(before, name), new_value = value_of(after, name);
    if (old_value != new_value) lines.push_back(name + ": " + old_value + " -> " + new_value);
  }
  return lines;
}

std::string explain_entries(std::vector<CacheManifest> manifests) {
  std::sort(manifests.begin(), manifests.end(), [](const auto& left, const auto& right) {
    return std::tie(left.name, left.time, left.key) < std::tie(right.name, right.time, right.key);
  });
  std::ostringstream out;
  const CacheManifest* before = nullptr;
  for (const auto& manifest : manifests) {
    describe(manifest, out);
    if (before != nullptr && before->name == manifest.name) {
      out << "  computed again, because these differ from " << before->key << ":\n";
      for (const auto& line : changed_fields(*before, manifest)) out << "    " << line << '\n';
    } else {
      for (const auto& [name, value] : manifest.fields) out << "    " << name << ": " << value << '\n';
    }
    before = &manifest;
  }
  return out.str();
}

}  // namespace lockstep
