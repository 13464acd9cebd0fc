#include "datasets/cache/cache_entry.hpp"

#include <fmt/core.h>

#include <cinttypes>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/checksum.hpp"
#include "core/input_file.hpp"
#include "core/json_text.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr char kFormat[] = "lockstep-cache";
constexpr int kVersion = 1;
constexpr std::uint64_t kLargestManifest = std::uint64_t{256} << 20;

json shard_json(const CachedShard& shard) {
  return {{"file", shard.file_name()}, {"rows", shard.rows}, {"bytes", shard.bytes}};
}

CachedShard shard_from(const json& each) {
  const auto name = each.at("file").get<std::string>();
  auto shard = parse_shard_name(name);
  if (!shard) throw DataError("'" + name + "' is not a shard's name");
  each.at("bytes").get_to(shard->bytes);
  return *shard;
}

json fields_json(const CacheManifest& manifest) {
  json fields = json::object();
  for (const auto& [name, value] : manifest.fields) fields[name] = json::parse(value);
  return fields;
}

CacheManifest manifest_from(const json& from) {
  if (from.at("format") != kFormat || from.at("version") != kVersion)
    throw DataError(fmt::format("expected format {}, version {}", kFormat, kVersion));
  CacheManifest manifest;
  from.at("key").get_to(manifest.key);
  from.at("name").get_to(manifest.name);
  from.at("time").get_to(manifest.time);
  from.at("complete").get_to(manifest.complete);
  from.at("shard_count").get_to(manifest.shard_count);
  from.at("seconds").get_to(manifest.seconds);
  for (const auto& [name, value] : from.at("fields").items()) manifest.fields[name] = json_text(value);
  for (const auto& each : from.at("shards")) manifest.shards.push_back(shard_from(each));
  return manifest;
}

}  // namespace

std::string CachedShard::file_name() const {
  return fmt::format("shard-{:05}.rows-{}.crc32c-{:08x}.arrow", number, rows, crc32c);
}

std::optional<CachedShard> parse_shard_name(const std::string& name) {
  CachedShard shard;
  const int numbers = std::sscanf(name.c_str(), "shard-%" SCNu64 ".rows-%" SCNu64 ".crc32c-%" SCNx32,
                                  &shard.number, &shard.rows, &shard.crc32c);
  return numbers == 3 && shard.file_name() == name ? std::optional(shard) : std::nullopt;
}

std::uint64_t CacheManifest::rows() const {
  return std::accumulate(shards.begin(), shards.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const auto& shard) { return sum + shard.rows; });
}

std::uint64_t CacheManifest::bytes() const {
  return std::accumulate(shards.begin(), shards.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const auto& shard) { return sum + shard.bytes; });
}

std::string manifest_text(const CacheManifest& manifest) {
  json shards = json::array();
  for (const auto& shard : manifest.shards) shards.push_back(shard_json(shard));
  const json all = {{"format", kFormat},
                    {"version", kVersion},
                    {"key", manifest.key},
                    {"name", manifest.name},
                    {"fields", fields_json(manifest)},
                    {"time", manifest.time},
                    {"complete", manifest.complete},
                    {"shard_count", manifest.shard_count},
                    {"seconds", manifest.seconds},
                    {"shards", std::move(shards)}};
  return json_text(all, 2) + "\n";
}

CacheManifest parse_manifest(const std::string& text, const std::string& path) {
  try {
    return manifest_from(json::parse(text));
  } catch (const std::exception& error) {
    throw DataError("'" + path + "' is not a manifest of a cache entry: " + error.what() +
                    ". Remove its folder; the result is then computed again.");
  }
}

std::optional<CacheManifest> read_manifest(const fs::path& entry) {
  const fs::path path = entry / "manifest.json";
  std::error_code failure;
  if (!fs::exists(path, failure)) return std::nullopt;
  InputFile file(path);
  if (file.size() > kLargestManifest) throw DataError("'" + path.string() + "' is too large for a manifest.");
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read(text.data(), text.size());
  return parse_manifest(text, path.string());
}

void write_manifest(const fs::path& entry, const CacheManifest& manifest) {
  write_atomically(entry / "manifest.json", manifest_text(manifest));
}

std::map<std::uint64_t, CachedShard> finished_shards(const fs::path& entry) {
  std::map<std::uint64_t, CachedShard> result;
  std::error_code failure;
  for (const auto& file : fs::directory_iterator(entry, failure)) {
    auto shard = parse_shard_name(file.path().filename());
    if (!shard) continue;
    std::error_code gone;
    shard->bytes = file.file_size(gone);
    if (!gone) result[shard->number] = *shard;
  }
  return result;
}

std::string utc_time_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace lockstep
