#include "weights_only.hpp"

#include <algorithm>
#include <optional>

#include "../../checkpoint/checkpoint_name.hpp"
#include "lockstep/checkpoint/checkpoint_folder.hpp"
#include "lockstep/core/atomic_directory.hpp"
#include "lockstep/train/model_files.hpp"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

/// The step in the name of a folder of weights; nothing for everything else.
std::optional<std::int64_t> step_of(const fs::path& path) {
  const auto step = step_in_name(path.filename());
  return step && !fs::exists(path / kManifestFileName) ? step : std::nullopt;
}

/// Newest first.
std::vector<fs::path> folders_of_weights(const fs::path& folder) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (const auto step = step_of(entry.path())) found.emplace_back(*step, entry.path());
  }
  std::sort(found.begin(), found.end(), std::greater<>());
  std::vector<fs::path> folders;
  for (auto& [step, path] : found) folders.push_back(std::move(path));
  return folders;
}

void rotate_weights(const fs::path& folder, const WeightsRotation& rotation) {
  if (rotation.total_limit <= 0) return;
  auto left = folders_of_weights(folder);
  for (std::size_t i = left.size();
       i-- > 1 && left.size() > static_cast<std::size_t>(rotation.total_limit);) {
    if (left[i].filename() == rotation.protect) continue;
    remove_folder(left[i]);
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

}  // namespace

void save_weights_only(const fs::path& folder, std::int64_t step, const std::vector<NamedTensor>& tensors,
                       const std::function<void(const fs::path&)>& add, const WeightsRotation& rotation) {
  const fs::path path = folder / checkpoint_name(step);
  AtomicDirectory written(path);
  write_model(written.path(), tensors);
  add(written.path());
  written.commit();
  rotate_weights(folder, rotation);
}

void remove_weights(const fs::path& folder, std::int64_t step) {
  const fs::path path = folder / checkpoint_name(step);
  if (fs::exists(path) && step_of(path)) remove_folder(path);
}

}  // namespace lockstep::train
