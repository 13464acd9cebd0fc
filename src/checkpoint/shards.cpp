#include "checkpoint/shards.hpp"

#include <fmt/core.h>

#include "checkpoint/shallow_json.hpp"
#include "core/json_text.hpp"

namespace lockstep::shards {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Names = std::vector<std::string>;

/// Maximum size of an index that is read: a million tensors with names of a hundred characters.
constexpr std::uint64_t kLongestIndex = 200U << 20U;
/// Nesting depth: the document and its two objects.
constexpr int kDeepest = 3;

std::vector<Names> split(const TensorSizes& tensors, std::uint64_t largest) {
  std::vector<Names> shards;
  Names open;
  std::uint64_t open_bytes = 0;
  for (const auto& [name, bytes] : tensors) {
    if (bytes > largest) {
      shards.push_back({name});
      continue;
    }
    if (open_bytes + bytes > largest) {
      shards.push_back(std::exchange(open, {}));
      open_bytes = 0;
    }
    open.push_back(name);
    open_bytes += bytes;
  }
  if (!open.empty()) shards.push_back(std::move(open));
  return shards;
}

std::string numbered(const std::string& file, std::size_t index, std::size_t count) {
  const fs::path path(file);
  return fmt::format("{}-{:05}-of-{:05}{}", path.stem().string(), index + 1, count,
                     path.extension().string());
}

std::string checked_name(const std::string& name, const fs::path& index) {
  if (is_plain_file_name(name)) return name;
  throw DataError(
      fmt::format("'{}' names the file '{}', which is not a plain file name.", index.string(), name));
}

}  // namespace

Plan plan(const TensorSizes& tensors, std::uint64_t largest, const std::string& file) {
  auto shards = split(tensors, largest);
  Plan result;
  for (const auto& entry : tensors) result.total_bytes += entry.second;
  if (shards.empty()) shards.emplace_back();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    result.files.emplace_back(shards.size() == 1 ? file : numbered(file, i, shards.size()),
                              std::move(shards[i]));
  }
  return result;
}

std::string index_text(const Plan& plan) {
  json document{{"metadata", {{"total_size", plan.total_bytes}}}, {"weight_map", json::object()}};
  for (const auto& [file, names] : plan.files) {
    for (const auto& name : names) document["weight_map"][name] = file;
  }
  return json_text(document, 2) + "\n";
}

std::map<std::string, std::string> read_index(const fs::path& path) {
  const std::string text = read_short_file(path, kLongestIndex, "an index");
  try {
    std::map<std::string, std::string> files;
    const json document = parse_shallow_json(text, kDeepest);
    for (const auto& [name, file] : document.at("weight_map").items())
      files[name] = checked_name(file.get<std::string>(), path);
    return files;
  } catch (const DataError&) {
    throw;
  } catch (const std::exception& error) {
    throw DataError(fmt::format("'{}' is not an index of a model's files: {}", path.string(), error.what()));
  }
}

}  // namespace lockstep::shards
