#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <numeric>

#include "core/checksum.hpp"
#include "datasets/cache/cache_entry.hpp"
#include "datasets/cache/file_stamp.hpp"
#include "datasets/cache/saved_folder.hpp"
#include "datasets/cache/staging.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// Adds the file at `path`, relative to the source.
void add(StagingPlan& plan, const fs::path& path, std::optional<std::uint32_t> crc32c = std::nullopt) {
  const fs::path whole = plan.source / path;
  struct stat status {};
  if (::stat(whole.c_str(), &status) < 0 || !S_ISREG(status.st_mode)) {
    throw DataError("'" + whole.string() + "' belongs to the data, but is not a file that can be read: " +
                    std::generic_category().message(errno != 0 ? errno : EINVAL) + ".");
  }
  plan.files.push_back({.path = path,
                        .bytes = static_cast<std::uint64_t>(status.st_size),
                        .crc32c = crc32c,
                        .version = file_stamp(status)});
}

void add_entry(StagingPlan& plan) {
  const auto manifest = read_manifest(plan.source);
  if (!manifest->complete) {
    throw DataError("the cache entry '" + plan.source.string() +
                    "' is unfinished: let the program that makes it end first.");
  }
  for (const auto& shard : manifest->shards) add(plan, shard.file_name(), shard.crc32c);
  add(plan, "manifest.json");
}

/// Adds a save_to_disk folder at `folder`, relative to the source.
void add_saved(StagingPlan& plan, const fs::path& folder) {
  for (const auto& file : read_saved_folder(plan.source / folder).files) add(plan, folder / file);
  add(plan, folder / "state.json");
  if (is_there(plan.source / folder / "dataset_info.json")) add(plan, folder / "dataset_info.json");
}

void add_splits(StagingPlan& plan) {
  for (const auto& split : read_saved_splits(plan.source)) add_saved(plan, split);
  add(plan, "dataset_dict.json");
}

void add_all(StagingPlan& plan) {
  for (const auto& each : fs::recursive_directory_iterator(plan.source)) {
    if (each.is_regular_file()) add(plan, each.path().lexically_relative(plan.source));
  }
  std::sort(plan.files.begin(), plan.files.end(),
            [](const auto& left, const auto& right) { return left.path < right.path; });
}

/// Named after the user: several users may share a disk.
std::string own_folder_name() { return fmt::format("lockstep-{}", ::getuid()); }

void make_own_folder(const fs::path& folder) {
  if (::mkdir(folder.c_str(), S_IRWXU) < 0 && errno != EEXIST) {
    throw Error(fmt::format("cannot make the folder '{}': {}.", folder.string(),
                            std::generic_category().message(errno)));
  }
  // lstat() instead of stat(): a symbolic link may refer to anything.
  struct stat status {};
  const bool is_folder = ::lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
  const auto mode = status.st_mode & 07777;
  if (is_folder && status.st_uid == ::getuid() && (mode & (S_IRWXG | S_IRWXO)) == 0) return;
  throw Error(fmt::format(
      "'{}' is to hold this user's copies of data alone: expected a folder of user {} with the mode 0700, "
      "found {} of user {} with the mode {:04o}. Somebody else may have put files there: remove it, or (if "
      "it is yours and you trust what is in it) say 'chmod 700', or name another folder by TMPDIR.",
      folder.string(), ::getuid(), is_folder ? "one" : "something else", status.st_uid, mode));
}

}  // namespace

std::uint64_t StagingPlan::bytes() const {
  return std::accumulate(files.begin(), files.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const auto& file) { return sum + file.bytes; });
}

StagingPlan plan_staging(const fs::path& source, bool all) {
  std::error_code failure;
  const fs::path whole = fs::canonical(source, failure);
  if (failure) throw DataError("cannot read '" + source.string() + "': " + failure.message() + ".");
  StagingPlan plan{.source = whole, .files = {}};
  if (fs::is_regular_file(whole)) {
    plan.source = whole.parent_path();
    plan.of_one_file = true;
    add(plan, whole.filename());
  } else if (all) {
    add_all(plan);
  } else if (is_there(whole / "manifest.json")) {
    add_entry(plan);
  } else if (is_there(whole / "state.json")) {
    add_saved(plan, "");
  } else if (is_there(whole / "dataset_dict.json")) {
    add_splits(plan);
  } else {
    throw UsageError("the folder '" + source.string() +
                     "' has no list of its files (state.json, dataset_dict.json, manifest.json). Copy all "
                     "of it (--all), or name the data set's folder.");
  }
  return plan;
}

void make_staging_parent(const fs::path& destination) {
  const fs::path own_name = own_folder_name();
  fs::path folder;
  const fs::path parent = fs::absolute(destination).lexically_normal().parent_path();
  for (const auto& part : parent) {
    folder /= part;
    if (part == own_name) {
      make_own_folder(folder);
    } else if (std::error_code failure;
               !fs::is_directory(folder, failure) && !fs::create_directory(folder, failure) && failure) {
      throw Error(fmt::format("cannot make the folder '{}': {}.", folder.string(), failure.message()));
    }
  }
}

fs::path default_staging_folder(const fs::path& source, const Environment& environment) {
  std::error_code failure;
  fs::path whole = fs::canonical(source, failure);
  if (failure) whole = fs::absolute(source).lexically_normal();
  fs::path disk = "/tmp";
  for (const char* name : {"TMPDIR", "SLURM_TMPDIR"}) {
    const auto value = find_variable(environment, name);
    if (value && !value->empty()) disk = *value;
  }
  const std::string text = whole.string();
  return disk / own_folder_name() /
         (whole.filename().string() + "-" + checksum_text(crc32c(text.data(), text.size())));
}

}  // namespace lockstep
