#include <algorithm>
#include <set>
#include <sstream>

#include "lockstep/datasets/cache_folder.hpp"

namespace lockstep {
namespace {

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
      out << "  computed anew, for these differ from " << before->key << ":\n";
      for (const auto& line : changed_fields(*before, manifest)) out << "    " << line << '\n';
    } else {
      for (const auto& [name, value] : manifest.fields) out << "    " << name << ": " << value << '\n';
    }
    before = &manifest;
  }
  return out.str();
}

}  // namespace lockstep
