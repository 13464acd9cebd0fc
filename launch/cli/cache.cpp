#include <algorithm>
#include <ostream>

#include "cache/cache_options.hpp"
#include "cache/cache_report.hpp"
#include "cli/commands.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::launch {
namespace {

/// As many digits of a key as are never typed for a name.
constexpr std::size_t kShortestKey = 6;

using Entries = std::vector<CacheEntry>;

bool means(const std::string& word, const CacheEntry& entry) {
  const bool beginning = word.size() >= kShortestKey && entry.manifest.key.starts_with(word);
  return word == entry.manifest.name || beginning;
}

/// The entries that the words name. Throws UsageError for a word that names none.
Entries chosen(const Entries& all, const Words& words, const std::string& folder) {
  Entries result;
  for (const auto& word : words) {
    const auto before = result.size();
    std::copy_if(all.begin(), all.end(), std::back_inserter(result),
                 [&](const auto& entry) { return means(word, entry); });
    if (result.size() > before) continue;
    throw UsageError("'" + word + "': no entry in '" + folder +
                     "' has this name or key. 'lockstep cache ls' lists them.");
  }
  return result;
}

void list(const CacheOptions& options, const Entries& all, std::ostream& out) {
  if (!options.names.empty())
    throw UsageError("ls: '" + options.names.front() + "' was not expected; see explain.");
  out << (options.json ? cache_json(all, false) : cache_table(all));
}

void explain(const CacheOptions& options, const Entries& all, std::ostream& out) {
  if (options.names.empty()) throw UsageError("explain: expected a KEY or a NAME.");
  const Entries entries = chosen(all, options.names, options.dir);
  if (options.json) {
    out << cache_json(entries, true);
    return;
  }
  std::vector<CacheManifest> manifests;
  for (const auto& entry : entries) manifests.push_back(entry.manifest);
  out << explain_entries(std::move(manifests));
}

void drop_recent(const CacheOptions& options, Entries& entries) {
  if (!options.older_than) return;
  const auto newest = std::filesystem::file_time_type::clock::now() - age_from(*options.older_than);
  std::erase_if(entries, [&](const auto& entry) { return entry.last_use > newest; });
}

/// Removes what is not in use; what is says so.
int remove_all(const Entries& entries, std::ostream& out, std::ostream& err) {
  int status = 0;
  std::uint64_t bytes = 0, removed = 0;
  for (const auto& entry : entries) {
    try {
      remove_entry(entry);
      bytes += entry.bytes;
      ++removed;
    } catch (const Error& error) {
      err << "lockstep cache: " << error.what() << '\n';
      status = 1;
    }
  }
  out << "removed " << removed << (removed == 1 ? " entry, " : " entries, ") << bytes_text(bytes) << '\n';
  return status;
}

int clear(const CacheOptions& options, const Entries& all, std::ostream& out, std::ostream& err) {
  if (options.names.empty() && !options.all && !options.older_than)
    throw UsageError("clear: expected KEYs or NAMEs, --older-than TIME or --all.");
  Entries entries = options.names.empty() ? all : chosen(all, options.names, options.dir);
  drop_recent(options, entries);
  return remove_all(entries, out, err);
}

}  // namespace

int cache_command(const Words& words, std::ostream& out, std::ostream& err) {
  const std::string command = words.empty() ? "" : words.front();
  const auto parsed = cache_option_table().parse({words.begin() + (words.empty() ? 0 : 1), words.end()});
  if (parsed.help || command == "--help" || command == "-h") {
    out << cache_option_table().help();
    return 0;
  }
  if (command != "ls" && command != "explain" && command != "clear")
    throw UsageError("expected ls, explain or clear, not '" + command + "'. See lockstep cache --help.");
  CacheOptions options = parsed.options;
  if (options.dir.empty()) options.dir = default_cache_folder(process_environment());
  const Entries all = list_cache(options.dir);
  if (command == "clear") return clear(options, all, out, err);
  if (command == "ls") list(options, all, out);
  if (command == "explain") explain(options, all, out);
  return 0;
}

}  // namespace lockstep::launch
