#include "train/trainer/weights_only.hpp"

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include "checkpoint/checkpoint_folder.hpp"
#include "core/atomic_directory.hpp"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

/// The step in the name of a folder of weights; null for any other path.
std::optional<std::int64_t> step_of(const fs::path& path) {
  const auto step = step_in_name(path.filename());
  return step && !fs::exists(path / kManifestFileName) ? step : std::nullopt;
}

/// The folders of weights, newest first: by the time of writing, because a run that began anew has lower
/// steps than those that it found.
std::vector<fs::path> folders_of_weights(const fs::path& folder) {
  std::vector<std::tuple<fs::file_time_type, std::int64_t, fs::path>> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (const auto step = step_of(entry.path()))
      found.emplace_back(entry.last_write_time(), *step, entry.path());
  }
  std::sort(found.begin(), found.end(), std::greater<>());
  std::vector<fs::path> folders;
  for (auto& [time, step, path] : found) folders.push_back(std::move(path));
  return folders;
}

}  // namespace

void save_weights_only(const fs::path& folder, std::int64_t step,
                       const std::function<void(const fs::path&)>& write, const RotationOptions& rotation) {
  const fs::path path = folder / checkpoint_name(step);
  AtomicDirectory written(path);
  write(written.path());
  written.commit();
  auto folders = folders_of_weights(folder);
  remove_oldest(folders, rotation, std::identity());
}

void remove_weights(const fs::path& folder, std::int64_t step) {
  const fs::path path = folder / checkpoint_name(step);
  if (fs::exists(path) && step_of(path)) remove_folder(path);
}

}  // namespace lockstep::train
