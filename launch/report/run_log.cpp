#include "report/run_log.hpp"

#include <fmt/core.h>

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

void RunLog::add(std::string_view name, const LoggedPoint& point) {
  const std::string key = utf8_text(state_name_of(name.substr(0, kLongestName)));
  const auto found = series_.find(key);
  const bool is_new_name = found == series_.end();
  if (points_ >= kMostPoints || (is_new_name && series_.size() >= kMostNames)) {
    ++left_out_;
    return;
  }
  auto& points = is_new_name ? series_[key] : found->second;
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
