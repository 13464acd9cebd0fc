#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <vector>

#include "checkpoint/checkpoint_folder.hpp"
#include "core/atomic_directory.hpp"

namespace lockstep {

/// Removes the oldest folders until total_limit is met, or only those that must be kept are left. `path`
/// returns the folder of an entry.
template <class Entry, class Path>
void remove_oldest(std::vector<Entry>& newest_first, const RotationOptions& options, const Path& path) {
  if (options.total_limit <= 0) return;
  for (std::size_t i = newest_first.size();
       i-- > 1 && newest_first.size() > static_cast<std::size_t>(options.total_limit);) {
    const std::filesystem::path folder = std::invoke(path, newest_first[i]);
    if (folder.filename() == options.protect) continue;
    remove_folder(folder);
    newest_first.erase(newest_first.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

}  // namespace lockstep
