#include "report/run_log.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "core/utf8_check.hpp"
#include "report/number_words.hpp"

namespace lockstep::launch {
namespace {

/// More would take gigabytes, and no screen shows them.
constexpr std::size_t kMostPoints = 20'000'000;
constexpr std::size_t kMostNames = 2000;
/// A logged name may be of any length.
constexpr std::size_t kLongestName = 200;

}  // namespace

std::string state_name_of(std::string_view tracked) {
  if (tracked.starts_with("train/")) return std::string(tracked.substr(6));
  for (const std::string_view group : {"eval/", "test/"}) {
    if (!tracked.starts_with(group)) continue;
    return std::string(group.substr(0, group.size() - 1)) + "_" + std::string(tracked.substr(group.size()));
  }
  return std::string(tracked);
}

RunLog::Series::value_type* RunLog::series_of(std::string_view name) {
  constexpr std::size_t kMostKnown = 64;
  if (next_known_ >= known_.size()) next_known_ = 0;
  for (std::size_t tried = 0; tried < std::min<std::size_t>(known_.size(), 2); ++tried) {
    const std::size_t place = (next_known_ + tried) % known_.size();
    if (known_[place].first != name) continue;
    next_known_ = place + 1;
    return known_[place].second;
  }
  const std::string key = utf8_text(state_name_of(name.substr(0, kLongestName)));
  if (!series_.contains(key) && series_.size() >= kMostNames) return nullptr;
  auto& found = *series_.try_emplace(key).first;
  const auto known =
      std::ranges::find(known_, name, [](const auto& each) { return std::string_view(each.first); });
  next_known_ = static_cast<std::size_t>(known - known_.begin()) + 1;
  if (known == known_.end() && known_.size() < kMostKnown) known_.emplace_back(name, &found);
  return &found;
}

void RunLog::add(std::string_view name, const LoggedPoint& point) {
  auto* const series = points_ < kMostPoints ? series_of(name) : nullptr;
  if (series == nullptr) {
    ++left_out_;
    return;
  }
  auto& [key, points] = *series;
  const bool goes_back = !points.empty() && point.step < points.back().step;
  while (!points.empty() && points.back().step >= point.step) {
    points.pop_back();
    --points_;
  }
  if (goes_back && key == "loss") starts_.push_back({points.empty() ? 0 : points.back().step, point.time});
  points.push_back(point);
  ++points_;
}

void RunLog::go_back_to(double step) {
  for (auto& [name, points] : series_) {
    while (!points.empty() && points.back().step > step) {
      points.pop_back();
      --points_;
    }
  }
}

std::map<std::string, std::vector<LoggedPoint>> RunLog::take_series() {
  known_.clear();
  points_ = 0;
  return std::exchange(series_, {});
}

std::vector<std::string> RunLog::problems() const {
  auto all = problems_;
  if (left_out_ > 0) {
    all.push_back(fmt::format("{}: {} values were left out: a report reads at most {} values and {} names.",
                              source_, count_words(static_cast<double>(left_out_)), count_words(kMostPoints),
                              count_words(kMostNames)));
  }
  return all;
}

}  // namespace lockstep::launch
