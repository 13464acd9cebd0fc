#include "cli/cache.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "core/byte_size.hpp"
#include "core/json_text.hpp"
#include "core/text.hpp"
#include "core/time.hpp"
#include "datasets/cache/cache_folder.hpp"
#include "lockstep/core/error.hpp"
#include "process/words.hpp"

namespace lockstep::launch {
namespace {

/// Shorter words are not taken as the beginning of a key.
constexpr std::size_t kShortestKey = 6;

struct CacheOptions {
  std::string dir;
  bool json = false;
  bool all = false;
  std::optional<std::string> older_than;
  /// Keys, their beginnings, or names.
  std::vector<std::string> names;
};

using CacheTable = OptionTable<CacheOptions>;
using Entries = std::vector<CacheEntry>;

/// The options of all actions.
CacheTable table_of(const std::string& action, const std::string& description) {
  return CacheTable("lockstep cache " + action, description)
      .add("dir", &CacheOptions::dir,
           "The cache's folder. Without it: $LOCKSTEP_CACHE, else $XDG_CACHE_HOME/lockstep, else "
           "~/.cache/lockstep.");
}

std::chrono::seconds age_from(const std::string& text) {
  static const std::map<char, std::int64_t> kUnits{
      {'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86'400}, {'w', 604'800}};
  constexpr std::int64_t kLongest = 1'000'000'000;
  const auto unit = text.empty() ? kUnits.end() : kUnits.find(text.back());
  const bool has_unit = unit != kUnits.end();
  const auto number =
      parse_number<std::int64_t>(std::string_view(text).substr(0, text.size() - (has_unit ? 1 : 0)));
  if (number && *number >= 0 && *number <= kLongest)
    return std::chrono::seconds(*number * (has_unit ? unit->second : 1));
  throw formatted<UsageError>("--older-than '{}': expected a time as in 90 (seconds), 30m, 12h, 7d or 2w.",
                              text);
}

/// The declared version; otherwise the build id.
std::string version_of(const CacheManifest& manifest) {
  for (const char* field : {"version", "build_id"}) {
    const auto found = manifest.fields.find(field);
    if (found == manifest.fields.end()) continue;
    const auto value = nlohmann::json::parse(found->second);
    const std::string text = value.is_string() ? value.get<std::string>() : json_text(value);
    return field == std::string("build_id") ? "build " + text.substr(0, 8) : text;
  }
  return "-";
}

std::string last_use_text(std::filesystem::file_time_type time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(
      std::chrono::file_clock::to_sys(std::chrono::time_point_cast<std::chrono::seconds>(time)));
  return format_time(seconds, "%Y-%m-%dT%H:%M:%SZ", gmtime_r);
}

using Row = std::vector<std::string>;

Row row_of(const CacheEntry& entry) {
  return {entry.manifest.key.substr(0, 12),
          entry.manifest.name,
          version_of(entry.manifest),
          fmt::format("{}{}", entry.rows, entry.manifest.complete ? "" : " (unfinished)"),
          bytes_text(entry.bytes),
          last_use_text(entry.last_use),
          hold_on(entry)};
}

std::string aligned(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}", row[i], widths[i] + 2);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
  return text;
}

/// "2 entries, 1.2 GiB".
std::string sum_text(std::size_t entries, std::uint64_t bytes) {
  return fmt::format("{} {}, {}\n", entries, entries == 1 ? "entry" : "entries", bytes_text(bytes));
}

std::string cache_table(const Entries& entries) {
  std::vector<Row> rows{{"KEY", "NAME", "VERSION", "ROWS", "SIZE", "LAST USE", "IN USE"}};
  std::uint64_t bytes = 0;
  for (const auto& entry : entries) {
    rows.push_back(row_of(entry));
    bytes += entry.bytes;
  }
  return (entries.empty() ? "" : aligned(rows)) + sum_text(entries.size(), bytes);
}

/// An array of objects: key, name, version, complete, rows, bytes, last_use (UTC), in_use, folder, and with
/// `fields` the values from which the key was computed.
std::string cache_json(const Entries& entries, bool fields) {
  nlohmann::json all = nlohmann::json::array();
  for (const auto& entry : entries) {
    nlohmann::json each = {{"key", entry.manifest.key},
                           {"name", entry.manifest.name},
                           {"version", version_of(entry.manifest)},
                           {"complete", entry.manifest.complete},
                           {"rows", entry.rows},
                           {"bytes", entry.bytes},
                           {"last_use", last_use_text(entry.last_use)},
                           {"in_use", hold_on(entry)},
                           {"folder", entry.folder.string()}};
    if (fields) {
      for (const auto& [name, value] : entry.manifest.fields)
        each["fields"][name] = nlohmann::json::parse(value);
    }
    all.push_back(std::move(each));
  }
  return json_text(all, 2) + "\n";
}

Entries entries_in(CacheOptions& options) {
  if (options.dir.empty()) options.dir = default_cache_folder(process_environment());
  return list_cache(options.dir);
}

bool means(const std::string& word, const CacheEntry& entry) {
  const bool beginning = word.size() >= kShortestKey && entry.manifest.key.starts_with(word);
  return word == entry.manifest.name || beginning;
}

/// The entries that the options name. Throws UsageError if a word matches none.
Entries chosen(const Entries& all, const CacheOptions& options) {
  Entries result;
  for (const auto& word : options.names) {
    const auto before = result.size();
    std::ranges::copy_if(all, std::back_inserter(result),
                         [&](const auto& entry) { return means(word, entry); });
    if (result.size() > before) continue;
    throw formatted<UsageError>(
        "'{}': no entry in '{}' has this name or key. 'lockstep cache ls' lists them.", word, options.dir);
  }
  return result;
}

int list(const Words& words, std::ostream& out, std::ostream&) {
  auto parsed = parse_or_help(table_of("ls", "Lists the cache's entries, the most recently used first.")
                                  .add("json", &CacheOptions::json, "Print JSON, for programs."),
                              words, out);
  if (!parsed) return 0;
  const Entries all = entries_in(parsed->options);
  out << (parsed->options.json ? cache_json(all, false) : cache_table(all));
  return 0;
}

int explain(const Words& words, std::ostream& out, std::ostream&) {
  auto parsed = parse_or_help(
      table_of("explain",
               "Shows what an entry was made from and, for several entries of one name, which of it changed.")
          .add("json", &CacheOptions::json, "Print JSON, for programs.")
          .rest("KEY|NAME", &CacheOptions::names, "Keys, beginnings of keys, or names.", true),
      words, out);
  if (!parsed) return 0;
  const Entries all = entries_in(parsed->options);
  const Entries entries = chosen(all, parsed->options);
  if (parsed->options.json) {
    out << cache_json(entries, true);
    return 0;
  }
  std::vector<CacheManifest> manifests;
  for (const auto& entry : entries) manifests.push_back(entry.manifest);
  out << explain_entries(std::move(manifests));
  return 0;
}

/// Removes the entries that are not in use, and reports the others.
int remove_all(const Entries& entries, std::ostream& out, std::ostream& err) {
  int status = 0;
  std::size_t removed = 0;
  std::uint64_t bytes = 0;
  for (const auto& entry : entries) {
    try {
      remove_entry(entry);
      bytes += entry.bytes;
      ++removed;
    } catch (const Error& error) {
      err << fmt::format("lockstep cache: {}\n", error.what());
      status = 1;
    }
  }
  out << "removed " << sum_text(removed, bytes);
  return status;
}

int clear(const Words& words, std::ostream& out, std::ostream& err) {
  auto parsed = parse_or_help(
      table_of("clear",
               "Removes the entries of the given keys or names; those that a process writes or reads stay.")
          .add("older-than", &CacheOptions::older_than,
               "Only entries that were not used for this long: 90 (seconds), 30m, 12h, 7d, 2w.")
          .add("all", &CacheOptions::all, "Every entry, whatever its name.")
          .rest("KEY|NAME", &CacheOptions::names, "Keys, beginnings of keys, or names."),
      words, out);
  if (!parsed) return 0;
  CacheOptions& options = parsed->options;
  if (options.names.empty() && !options.all && !options.older_than)
    throw UsageError("clear: expected KEYs or NAMEs, --older-than TIME or --all.");
  const Entries all = entries_in(options);
  Entries entries = options.names.empty() ? all : chosen(all, options);
  if (options.older_than) {
    const auto age = age_from(*options.older_than);
    const auto now = std::filesystem::file_time_type::clock::now();
    std::erase_if(entries, [&](const auto& entry) {
      return std::chrono::floor<std::chrono::seconds>(now - entry.last_use) < age;
    });
  }
  return remove_all(entries, out, err);
}

}  // namespace

int cache_command(const Words& words, std::ostream& out, std::ostream& err) {
  static const std::vector<Command> actions{
      {"ls", "Lists the entries of map's cache, the most recently used first.", list},
      {"explain", "Shows the parts of entries' keys, and what changed between entries.", explain},
      {"clear", "Removes entries that are not in use.", clear},
  };
  return run_one_of(actions, "lockstep cache", words, out, err);
}

}  // namespace lockstep::launch
