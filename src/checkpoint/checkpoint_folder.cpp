#include "checkpoint/checkpoint_folder.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "checkpoint/checkpoint_rotation.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/shallow_json.hpp"
#include "core/atomic_directory.hpp"
#include "core/checksum.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using manifest::Manifest;

/// A training's output folder is often given in place of a checkpoint in it.
[[noreturn]] void fail_without_manifest(const fs::path& folder) {
  std::error_code failure;
  if (!fs::is_directory(folder, failure))
    throw DataError(fmt::format("'{}' is not a checkpoint: there is no such folder.", folder.string()));
  const auto inside = list_checkpoints(folder);
  const auto last =
      std::ranges::max_element(inside, {}, [](const Checkpoint& each) { return each.info.step; });
  throw DataError(fmt::format(
      "'{}' is not a checkpoint: it has no {}.{}", folder.string(), kManifestFileName,
      last == inside.end() ? "" : fmt::format(" The last one in it is '{}'.", last->path.string())));
}

Manifest read_manifest(const fs::path& checkpoint) {
  const fs::path path = checkpoint / kManifestFileName;
  if (std::error_code failure; !fs::exists(path, failure)) fail_without_manifest(checkpoint);
  const std::string text = read_short_file(path, manifest::kLongest, "a manifest");
  return manifest::from_text(text, fmt::format("'{}'", path.string()));
}

/// Completes the known digests with those of all other files in the folder.
FileDigests digests_in(const fs::path& folder, FileDigests known) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (!known.contains(name)) known[name] = digest_of(entry.path());
  }
  return known;
}

void verify_file(const fs::path& path, const FileDigest& wanted) {
  const FileDigest found = digest_of(path);
  if (found.bytes != wanted.bytes) {
    throw DataError(
        fmt::format("'{}' has {} bytes, but {} were written.", path.string(), found.bytes, wanted.bytes));
  }
  if (found.crc32c != wanted.crc32c) {
    throw DataError(fmt::format("'{}' has the checksum {}, but {} was written: it was changed or damaged.",
                                path.string(), checksum_text(found.crc32c), checksum_text(wanted.crc32c)));
  }
}

std::vector<fs::path> checkpoint_folders(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code failure;
  for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end;
       entry.increment(failure)) {
    if (step_in_name(entry->path().filename())) found.push_back(entry->path());
  }
  if (!failure || failure == std::errc::no_such_file_or_directory) return found;
  throw DataError(fmt::format("cannot read the folder '{}': {}.", folder.string(), failure.message()));
}

bool has_manifest(const fs::path& path) { return fs::exists(path / kManifestFileName); }

/// Whether a folder has a model's weights and descriptions, and nothing else to resume from.
bool holds_only_weights(const fs::path& path) {
  std::error_code failure;
  fs::path weights = path / "model.safetensors";
  if (!fs::exists(weights, failure)) weights = path / "adapter_model.safetensors";
  if (has_manifest(path) || !fs::exists(weights, failure)) return false;
  fs::directory_iterator entry(path, failure);
  for (; !failure && entry != fs::directory_iterator(); entry.increment(failure)) {
    if (entry->path() != weights && entry->path().extension() != ".json") return false;
  }
  return !failure;
}

/// A folder that is not a checkpoint must not be replaced because of its name.
void check_replaceable(const fs::path& path) {
  if (!fs::exists(fs::symlink_status(path)) || has_manifest(path)) return;
  throw UsageError(
      "'" + path.string() + "' exists and has no " + kManifestFileName +
      ", so it is not a checkpoint of Lockstep and is not replaced. Move it away, or save elsewhere.");
}

/// Those of unknown age first: they may be the newest, and must be reported.
std::vector<Checkpoint> candidates_in(const fs::path& folder) {
  std::vector<Checkpoint> candidates;
  for (const auto& path : checkpoint_folders(folder)) {
    if (!has_manifest(path)) candidates.push_back({path, {}});
  }
  auto known = list_checkpoints(folder);
  std::stable_partition(known.begin(), known.end(),
                        [](const auto& entry) { return entry.info.sequence == 0; });
  candidates.insert(candidates.end(), known.begin(), known.end());
  return candidates;
}

std::int64_t next_sequence(const fs::path& folder) {
  const auto checkpoints = list_checkpoints(folder);
  return checkpoints.empty() ? 1 : checkpoints.front().info.sequence + 1;
}

using Checkpoints = std::vector<Checkpoint>;

/// The usable ones, newest first, and the others.
std::pair<Checkpoints, Checkpoints> split_usable(const Checkpoints& all,
                                                 const std::vector<BadCheckpoint>& bad) {
  std::pair<Checkpoints, Checkpoints> result;
  for (const auto& checkpoint : all) {
    const bool is_bad =
        checkpoint.info.sequence == 0 ||
        std::any_of(bad.begin(), bad.end(), [&](const auto& entry) { return entry.path == checkpoint.path; });
    (is_bad ? result.second : result.first).push_back(checkpoint);
  }
  return result;
}

std::set<fs::path> best_of(const Checkpoints& newest_first, const RotationOptions& options) {
  Checkpoints measured;
  std::copy_if(newest_first.begin(), newest_first.end(), std::back_inserter(measured),
               [](const Checkpoint& checkpoint) { return checkpoint.info.metric.has_value(); });
  std::stable_sort(measured.begin(), measured.end(), [&](const Checkpoint& one, const Checkpoint& other) {
    return options.greater_is_better ? *one.info.metric > *other.info.metric
                                     : *one.info.metric < *other.info.metric;
  });
  std::set<fs::path> best;
  for (std::size_t i = 0; i < measured.size() && i < static_cast<std::size_t>(options.keep_best); ++i)
    best.insert(measured[i].path);
  return best;
}

}  // namespace

void write_checkpoint(const fs::path& path, CheckpointInfo info,
                      const std::function<FileDigests(const fs::path&)>& write) {
  check_replaceable(path);
  info.sequence = next_sequence(path.parent_path().empty() ? "." : path.parent_path());
  AtomicDirectory folder(path);
  auto known = write(folder.path());
  const std::string text = manifest::to_text({info, digests_in(folder.path(), std::move(known))});
  write_atomically(folder.path() / kManifestFileName, text);
  folder.commit();
}

Checkpoint verify_checkpoint(const fs::path& path) {
  const Manifest manifest = read_manifest(path);
  for (const auto& [name, digest] : manifest.files) verify_file(path / name, digest);
  return {path, manifest.info};
}

std::vector<Checkpoint> list_checkpoints(const fs::path& folder) {
  std::vector<Checkpoint> checkpoints;
  for (const auto& path : checkpoint_folders(folder)) {
    if (!has_manifest(path)) continue;
    try {
      checkpoints.push_back({path, read_manifest(path).info});
    } catch (const DataError&) {
      checkpoints.push_back({path, {}});  // verify_checkpoint reports the reason.
    }
  }
  std::sort(checkpoints.begin(), checkpoints.end(), [](const Checkpoint& one, const Checkpoint& other) {
    return one.info.sequence > other.info.sequence;
  });
  return checkpoints;
}

std::vector<fs::path> checkpoints_without_manifest(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const auto& path : checkpoint_folders(folder))
    if (!has_manifest(path) && !holds_only_weights(path)) found.push_back(path);
  std::sort(found.begin(), found.end());
  return found;
}

LatestCheckpoint latest_checkpoint(const fs::path& folder,
                                   const std::function<bool(const CheckpointInfo&)>& fits) {
  LatestCheckpoint latest;
  for (const auto& candidate : candidates_in(folder)) {
    if (fits && candidate.info.sequence != 0 && !fits(candidate.info)) continue;
    try {
      if (holds_only_weights(candidate.path)) {
        latest.weights_only.push_back(candidate.path);
        continue;
      }
      latest.checkpoint = verify_checkpoint(candidate.path);
      latest.weights_only.clear();
      return latest;
    } catch (const DataError& error) {
      latest.passed_over.push_back({candidate.path, error.what()});
    }
  }
  return latest;
}

void rotate_checkpoints(const fs::path& folder, const RotationOptions& options,
                        const std::vector<BadCheckpoint>& bad) {
  if (options.keep_last <= 0 && options.total_limit <= 0) return;
  auto [usable, unusable] = split_usable(list_checkpoints(folder), bad);
  remove_oldest(usable, options, &Checkpoint::path);
  const auto best = best_of(usable, options);
  for (std::size_t i = 0; i < usable.size(); ++i) {
    const bool is_new = options.keep_last <= 0 || i < static_cast<std::size_t>(options.keep_last);
    const bool is_milestone = options.keep_every > 0 && usable[i].info.step % options.keep_every == 0;
    if (!is_new && !is_milestone && !best.contains(usable[i].path)) remove_folder(usable[i].path);
  }
  for (const auto& checkpoint : unusable) remove_folder(checkpoint.path);
}

}  // namespace lockstep
