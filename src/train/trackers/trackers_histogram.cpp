#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "lockstep/train/trackers.hpp"

namespace lockstep {
namespace {

/// The bounds of TensorBoard's buckets, ascending.
std::vector<double> bucket_ends() {
  std::vector<double> upper;
  for (double end = 1e-12; end < 1e20; end *= 1.1) upper.push_back(end);
  std::vector<double> ends;
  for (auto end = upper.rbegin(); end != upper.rend(); ++end) ends.push_back(-*end);
  ends.push_back(0);
  ends.insert(ends.end(), upper.begin(), upper.end());
  return ends;
}

/// Number of values per bucket [end, next end). The last bucket includes its upper bound; values outside all
/// buckets are not counted.
std::vector<double> count(const std::vector<double>& values, const std::vector<double>& ends) {
  std::vector<double> counts(ends.size() - 1, 0);
  for (const double value : values) {
    if (value < ends.front() || value > ends.back()) continue;
    const auto above = std::upper_bound(ends.begin(), ends.end(), value) - ends.begin();
    counts[std::min(static_cast<std::size_t>(above), counts.size()) - 1] += 1;
  }
  return counts;
}

/// Adds the buckets from the first to the last non-empty one, after one empty bucket.
void add_buckets(Histogram& histogram, const std::vector<double>& counts, const std::vector<double>& ends) {
  const auto filled = [](double number) { return number > 0; };
  const auto first = std::find_if(counts.begin(), counts.end(), filled);
  if (first == counts.end()) return;
  const auto last = std::find_if(counts.rbegin(), counts.rend(), filled).base();
  const auto begin = ends.begin() + (first - counts.begin());
  histogram.limits.assign(begin, begin + (last - first) + 1);
  histogram.counts.assign(1, 0);
  histogram.counts.insert(histogram.counts.end(), first, last);
}

}  // namespace

Histogram histogram_of(std::span<const double> values) {
  std::vector<double> finite;
  std::copy_if(values.begin(), values.end(), std::back_inserter(finite),
               [](double value) { return std::isfinite(value); });
  Histogram histogram;
  if (finite.empty()) return histogram;
  const auto [least, most] = std::minmax_element(finite.begin(), finite.end());
  histogram.min = *least;
  histogram.max = *most;
  histogram.count = static_cast<double>(finite.size());
  for (const double value : finite) {
    histogram.sum += value;
    histogram.sum_squares += value * value;
  }
  static const std::vector<double> ends = bucket_ends();
  add_buckets(histogram, count(finite, ends), ends);
  return histogram;
}

}  // namespace lockstep
