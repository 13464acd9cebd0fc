#include "checkpoint/manifest.hpp"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "checkpoint/shallow_json.hpp"
#include "core/checksum.hpp"
#include "core/json_text.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::manifest {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "lockstep checkpoint";
constexpr const char* kOwnChecksum = "manifest_crc32c";
/// Nesting depth of a manifest: the document, its files, one file.
constexpr int kDeepest = 4;

/// The checksum of a document, independent of its whitespace.
std::string checksum_of(const json& document) {
  const std::string text = json_text(document);
  return checksum_text(crc32c(text.data(), text.size()));
}

json files_to_json(const std::map<std::string, FileDigest>& files) {
  json list = json::array();
  for (const auto& [name, digest] : files) {
    list.push_back({{"name", name}, {"bytes", digest.bytes}, {"crc32c", checksum_text(digest.crc32c)}});
  }
  return list;
}

std::uint32_t checksum_from(const std::string& text) {
  std::size_t read = 0;
  const auto value = std::stoul(text, &read, 16);
  if (text.size() != 8 || read != text.size())
    throw std::invalid_argument(fmt::format("'{}' is not a checksum", text));
  return static_cast<std::uint32_t>(value);
}

std::map<std::string, FileDigest> files_from_json(const json& list, const std::string& manifest) {
  std::map<std::string, FileDigest> files;
  for (const auto& entry : list) {
    const auto name = entry.at("name").get<std::string>();
    if (!is_plain_file_name(name))
      throw DataError(fmt::format("{} names the file '{}', which is not a plain file name.", manifest, name));
    files[name] = {entry.at("bytes").get<std::uint64_t>(),
                   checksum_from(entry.at("crc32c").get<std::string>())};
  }
  return files;
}

json frozen_to_json(const std::vector<FrozenWeights>& frozen) {
  json list = json::array();
  for (const auto& each : frozen) {
    list.push_back({{"model", each.model},
                    {"parameters", each.parameters},
                    {"bytes", each.bytes},
                    {"crc32c", checksum_text(each.crc32c)},
                    {"base", each.base}});
  }
  return list;
}

std::vector<FrozenWeights> frozen_from_json(const json& list) {
  std::vector<FrozenWeights> frozen;
  for (const auto& entry : list) {
    frozen.push_back({.model = entry.at("model").get<std::int64_t>(),
                      .parameters = entry.at("parameters").get<std::int64_t>(),
                      .bytes = entry.at("bytes").get<std::uint64_t>(),
                      .crc32c = checksum_from(entry.at("crc32c").get<std::string>()),
                      .base = entry.at("base").get<std::string>()});
  }
  return frozen;
}

void check_form(const json& document, const std::string& name) {
  if (document.at("format") != kFormat)
    throw DataError(name + " is not a manifest of a Lockstep checkpoint.");
  const int version = document.at("version").get<int>();
  if (version != kVersion) {
    throw DataError(
        fmt::format("{} is of format version {}; this library reads {}.", name, version, kVersion));
  }
  json rest = document;
  rest.erase(kOwnChecksum);
  if (document.at(kOwnChecksum) != checksum_of(rest))
    throw DataError(name + " does not match its own checksum: it was changed or damaged.");
}

}  // namespace

json info_to_json(const CheckpointInfo& info) {
  json document{{"step", info.step},
                {"epoch", info.epoch},
                {"world_size", info.world_size},
                {"started_from", info.started_from},
                {"sequence", info.sequence},
                {"lockstep_version", info.lockstep_version},
                {"libtorch_version", info.libtorch_version}};
  // JSON cannot represent numbers that are not finite, and they cannot be compared.
  if (info.metric && std::isfinite(*info.metric)) document["metric"] = *info.metric;
  if (!info.frozen.empty()) document["frozen"] = frozen_to_json(info.frozen);
  return document;
}

CheckpointInfo info_from_json(const json& document) {
  CheckpointInfo info{.step = document.at("step").get<std::int64_t>(),
                      .epoch = document.at("epoch").get<std::int64_t>(),
                      .world_size = document.at("world_size").get<int>(),
                      .started_from = document.at("started_from").get<std::string>(),
                      .sequence = document.at("sequence").get<std::int64_t>(),
                      .metric = {},
                      .lockstep_version = document.value("lockstep_version", ""),
                      .libtorch_version = document.value("libtorch_version", ""),
                      .frozen = {}};
  if (document.contains("metric")) info.metric = document["metric"].get<double>();
  if (document.contains("frozen")) info.frozen = frozen_from_json(document["frozen"]);
  return info;
}

std::string to_text(const Manifest& manifest) {
  json document = info_to_json(manifest.info);
  document["format"] = kFormat;
  document["version"] = kVersion;
  document["files"] = files_to_json(manifest.files);
  // A path may not be UTF-8: its bytes get their text before the checksum is computed.
  document = json::parse(json_text(document));
  document[kOwnChecksum] = checksum_of(document);
  return json_text(document, 2) + "\n";
}

Manifest from_text(std::string_view text, const std::string& name) {
  try {
    const json document = parse_shallow_json(text, kDeepest);
    check_form(document, name);
    return {info_from_json(document), files_from_json(document.at("files"), name)};
  } catch (const DataError&) {
    throw;
  } catch (const std::exception& error) {
    throw DataError(fmt::format("{} is not a manifest of a Lockstep checkpoint: {}", name, error.what()));
  }
}

}  // namespace lockstep::manifest
