#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "lockstep/train/metrics.hpp"
#include "train/metrics/check_seen.hpp"

namespace lockstep::metrics {
namespace {

using Words = std::vector<std::string_view>;

Words words_of(std::string_view text) {
  constexpr const char* kBlanks = " \t\r\n\v\f";
  Words words;
  for (std::size_t begin = text.find_first_not_of(kBlanks); begin != std::string_view::npos;) {
    const auto end = std::min(text.find_first_of(kBlanks, begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(kBlanks, end);
  }
  return words;
}

/// The n-grams of `length` words, with their counts.
std::map<Words, std::int64_t> runs_of(const Words& words, std::size_t length) {
  std::map<Words, std::int64_t> runs;
  for (std::size_t begin = 0; begin + length <= words.size(); ++begin) {
    const auto first = words.begin() + static_cast<std::ptrdiff_t>(begin);
    ++runs[Words(first, first + static_cast<std::ptrdiff_t>(length))];
  }
  return runs;
}

/// Counts each n-gram at most as often as it is in the reference.
std::int64_t matches(const std::map<Words, std::int64_t>& made, const std::map<Words, std::int64_t>& wanted) {
  std::int64_t count = 0;
  for (const auto& [run, times] : made) {
    const auto found = wanted.find(run);
    if (found != wanted.end()) count += std::min(times, found->second);
  }
  return count;
}

}  // namespace

void Bleu::update(std::string_view translation, std::string_view reference) {
  const Words made = words_of(translation), wanted = words_of(reference);
  for (std::size_t length = 1; length <= kLongest; ++length) {
    sums_[kRight + length - 1] += matches(runs_of(made, length), runs_of(wanted, length));
    sums_[kAll + length - 1] +=
        made.size() < length ? 0 : static_cast<std::int64_t>(made.size() - length + 1);
  }
  sums_[kWords] += static_cast<std::int64_t>(made.size());
  sums_[kReference] += static_cast<std::int64_t>(wanted.size());
  ++sums_[kPairs];
}

double Bleu::compute() const {
  check_seen("Bleu", samples());
  // The score is 0, without smoothing, if no word matches or the translations have no 4-gram.
  if (sums_[kRight] == 0 || sums_[kAll + kLongest - 1] == 0) return 0;
  double logarithms = 0, smoothing = 1;
  for (std::size_t length = 0; length < kLongest; ++length) {
    const auto all = static_cast<double>(sums_[kAll + length]);
    const auto right = static_cast<double>(sums_[kRight + length]);
    if (right == 0) smoothing *= 2;
    logarithms += std::log((right == 0 ? 1 / smoothing : right) / all);
  }
  const double ratio = static_cast<double>(sums_[kReference]) / static_cast<double>(sums_[kWords]);
  const double brevity = ratio > 1 ? std::exp(1 - ratio) : 1;
  return 100 * brevity * std::exp(logarithms / static_cast<double>(kLongest));
}

}  // namespace lockstep::metrics
