#include "core/suggestion.hpp"

#include <algorithm>
#include <limits>

namespace lockstep {
namespace {

using Row = std::vector<std::size_t>;

/// The number of characters to change, add, remove or swap to get from `a` to `b`.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<Row> rows(a.size() + 1, Row(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) rows[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) rows[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = rows[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      rows[i][j] = std::min({rows[i - 1][j] + 1, rows[i][j - 1] + 1, change});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
    }
  }
  return rows[a.size()][b.size()];
}

/// With `beginning`, compares with the candidates' beginnings: for a much shorter word ("nprc").
std::string nearest(std::string_view word, const std::vector<std::string>& candidates, bool beginning) {
  std::string best;
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (const auto& candidate : candidates) {
    const std::size_t compared = beginning ? word.size() + 1 : candidate.size();
    const std::size_t distance = edit_distance(word, std::string_view(candidate).substr(0, compared));
    const std::size_t longer = beginning ? word.size() : std::max(word.size(), candidate.size());
    const std::size_t allowed = std::max<std::size_t>(1, longer / 3);
    if (distance > allowed || distance >= least || distance >= candidate.size()) continue;
    best = candidate;
    least = distance;
  }
  return best;
}

}  // namespace

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates,
                         std::string_view prefix) {
  // A longer word is not a misspelling, and the distance takes time and memory proportional to the product of
  // the lengths.
  constexpr std::size_t kLongest = 100;
  if (word.size() > kLongest) return "";
  std::string meant = nearest(word, candidates, false);
  if (meant.empty() && word.size() >= 4) meant = nearest(word, candidates, true);
  return meant.empty() ? "" : " (did you mean '" + std::string(prefix) + meant + "'?)";
}

}  // namespace lockstep
