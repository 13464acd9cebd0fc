#include "weights_only.hpp"

#include <algorithm>
#include <charconv>

#include "lockstep/checkpoint/checkpoint_folder.hpp"
#include "lockstep/core/atomic_folder.hpp"
#include "lockstep/train/model_files.hpp"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStem = "checkpoint-";

/// The step in the name of a folder of weights; -1 for everything else.
std::int64_t step_of(const fs::path& path) {
  const std::string name = path.filename().string();
  if (!name.starts_with(kStem) || fs::exists(path / kManifestFileName)) return -1;
  std::int64_t step = -1;
  const char* const end = name.data() + name.size();
  const auto [stop, failure] = std::from_chars(name.data() + kStem.size(), end, step);
  return failure == std::errc() && stop == end ? step : -1;
}

/// Newest first.
std::vector<fs::path> folders_of_weights(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (step_of(entry.path()) >= 0) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end(),
            [](const fs::path& one, const fs::path& other) { return step_of(one) > step_of(other); });
  return found;
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
  AtomicFolder written(path);
  write_model(written.path(), tensors);
  add(written.path());
  written.commit();
  rotate_weights(folder, rotation);
}

void remove_weights(const fs::path& folder, std::int64_t step) {
  const fs::path path = folder / checkpoint_name(step);
  if (fs::exists(path) && step_of(path) >= 0) remove_folder(path);
}

}  // namespace lockstep::train
