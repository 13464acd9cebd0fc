#include "train/window_passes.hpp"

#include <algorithm>

namespace lockstep::train {
namespace {

bool ends(const DataLoaderProgress& progress) { return progress.position >= progress.size; }

}  // namespace

void WindowPasses::look(const std::vector<DataLoader::Position>& loaders) {
  std::map<std::size_t, Reading> now;
  for (std::size_t number = 0; number < loaders.size(); ++number) {
    const auto progress = loaders[number].progress();
    if (!progress) continue;
    Reading reading{*progress, true, false};
    if (const auto before = readings_.find(number); before != readings_.end()) {
      const auto& last = before->second;
      reading.advances = progress->pass != last.progress.pass || progress->position != last.progress.position;
      reading.advances_always = reading.advances && last.advances;
    }
    now.emplace(number, reading);
  }
  readings_ = std::move(now);
  abandoned_ = false;
  if (of_window_.size() == 1) {
    const auto& [number, pass] = *of_window_.begin();
    const auto reading = readings_.find(number);
    abandoned_ = reading != readings_.end() && reading->second.progress.pass != pass;
  }
  for (const auto& [number, reading] : readings_) of_window_[number] = reading.progress.pass;
}

void WindowPasses::begin_window() {
  of_window_.clear();
  for (const auto& [number, reading] : readings_) of_window_[number] = reading.progress.pass;
}

bool WindowPasses::at_end() const {
  if (readings_.empty()) return false;
  const auto ended = [](const auto& entry) { return ends(entry.second.progress); };
  return std::all_of(readings_.begin(), readings_.end(), ended) ||
         std::any_of(readings_.begin(), readings_.end(),
                     [&](const auto& entry) { return ended(entry) && entry.second.advances_always; });
}

std::optional<std::int64_t> WindowPasses::remaining() const {
  std::optional<std::int64_t> least;
  for (const auto& [number, reading] : readings_) {
    if (readings_.size() > 1 && !reading.advances_always) continue;
    const std::int64_t here = reading.progress.size - reading.progress.position + 1;
    least = std::min(least.value_or(here), here);
  }
  return least;
}

}  // namespace lockstep::train
