#include "cache/cache_report.hpp"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <sstream>

namespace lockstep::launch {
namespace {

/// The declared version, or the build that stands for one.
std::string version_of(const CacheManifest& manifest) {
  for (const char* field : {"version", "build_id"}) {
    const auto found = manifest.fields.find(field);
    if (found == manifest.fields.end()) continue;
    const auto value = nlohmann::json::parse(found->second);
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    return field == std::string("build_id") ? "build " + text.substr(0, 8) : text;
  }
  return "-";
}

std::string time_text(std::filesystem::file_time_type time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(
      std::chrono::file_clock::to_sys(std::chrono::time_point_cast<std::chrono::seconds>(time)));
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string rows_text(const CacheEntry& entry) {
  if (entry.manifest.complete) return std::to_string(entry.rows);
  return std::to_string(entry.rows) + " (unfinished)";
}

using Row = std::vector<std::string>;

Row row_of(const CacheEntry& entry) {
  return {entry.manifest.key.substr(0, 12),
          entry.manifest.name,
          version_of(entry.manifest),
          rows_text(entry),
          bytes_text(entry.bytes),
          time_text(entry.last_use),
          hold_on(entry)};
}

void print_aligned(const std::vector<Row>& rows, std::ostream& out) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i)
      line += row[i] + std::string(widths[i] + 2 - row[i].size(), ' ');
    out << line.substr(0, line.find_last_not_of(' ') + 1) << '\n';
  }
}

}  // namespace

std::string bytes_text(std::uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

std::string cache_table(const std::vector<CacheEntry>& entries) {
  std::ostringstream out;
  std::vector<Row> rows{{"KEY", "NAME", "VERSION", "ROWS", "SIZE", "LAST USE", "IN USE"}};
  std::uint64_t bytes = 0;
  for (const auto& entry : entries) {
    rows.push_back(row_of(entry));
    bytes += entry.bytes;
  }
  if (!entries.empty()) print_aligned(rows, out);
  out << entries.size() << (entries.size() == 1 ? " entry, " : " entries, ") << bytes_text(bytes) << '\n';
  return out.str();
}

std::string cache_json(const std::vector<CacheEntry>& entries, bool fields) {
  nlohmann::json all = nlohmann::json::array();
  for (const auto& entry : entries) {
    nlohmann::json each = {{"key", entry.manifest.key},
                           {"name", entry.manifest.name},
                           {"version", version_of(entry.manifest)},
                           {"complete", entry.manifest.complete},
                           {"rows", entry.rows},
                           {"bytes", entry.bytes},
                           {"last_use", time_text(entry.last_use)},
                           {"in_use", hold_on(entry)},
                           {"folder", entry.folder.string()}};
    if (fields) {
      for (const auto& [name, value] : entry.manifest.fields)
        each["fields"][name] = nlohmann::json::parse(value);
    }
    all.push_back(std::move(each));
  }
  return all.dump(2) + "\n";
}

}  // namespace lockstep::launch
