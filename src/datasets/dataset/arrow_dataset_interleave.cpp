#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "datasets/table/numpy_random.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/datasets/arrow_dataset.hpp"

namespace lockstep {
namespace {

using Rows = std::vector<std::int64_t>;

struct Sources {
  Rows lengths;
  Rows starts;
};

Sources sources_of(std::span<const ArrowDataset> datasets) {
  Sources sources;
  std::int64_t start = 0;
  for (const auto& dataset : datasets) {
    sources.lengths.push_back(dataset.num_rows());
    sources.starts.push_back(start);
    start += dataset.num_rows();
  }
  return sources;
}

Rows in_turns(const Sources& sources, StoppingStrategy strategy) {
  const auto [shortest, longest] = std::minmax_element(sources.lengths.begin(), sources.lengths.end());
  const bool first = strategy == StoppingStrategy::first_exhausted;
  if (strategy == StoppingStrategy::all_exhausted && *shortest == 0 && *longest > 0) {
    throw UsageError("interleave: an empty data set cannot begin again, as all_exhausted asks for.");
  }
  Rows rows;
  for (std::int64_t turn = 0; turn < (first ? *shortest : *longest); ++turn) {
    for (std::size_t source = 0; source < sources.lengths.size(); ++source) {
      const bool out = turn >= sources.lengths[source];
      if (out && strategy == StoppingStrategy::all_exhausted_without_replacement) continue;
      rows.push_back(sources.starts[source] + turn % sources.lengths[source]);
    }
  }
  return rows;
}

void check_probabilities(std::span<const double> probabilities, const Sources& sources,
                         StoppingStrategy strategy) {
  double sum = 0;
  for (const auto one : probabilities) sum += one >= 0 ? one : NAN;
  constexpr double kTolerance = 1e-8;
  if (probabilities.size() != sources.lengths.size() || !(std::fabs(sum - 1) < kTolerance)) {
    throw UsageError(
        fmt::format("interleave needs a probability of 0 or more for each of the {} data sets, adding up to "
                    "1; got {} that add up to {}.",
                    sources.lengths.size(), probabilities.size(), sum));
  }
  for (std::size_t source = 0; source < probabilities.size(); ++source) {
    const bool never = probabilities[source] == 0 && strategy != StoppingStrategy::first_exhausted;
    const bool empty = probabilities[source] > 0 && sources.lengths[source] == 0;
    if (!never && !empty) continue;
    throw UsageError(fmt::format(
        "interleave: the data set {} (counted from 0) {}", source,
        never ? "has probability 0 and would never be exhausted." : "is empty, but is to be drawn from."));
  }
}

/// Draws sources in blocks of 1000, like `datasets`, until the strategy ends it.
Rows drawn(const Sources& sources, std::span<const double> probabilities, std::uint64_t seed,
           StoppingStrategy strategy) {
  constexpr std::size_t kBlock = 1000;
  table::NumpyRandom random(seed);
  Rows given(sources.lengths.size(), 0);
  std::size_t exhausted = 0;
  const auto stop = strategy == StoppingStrategy::first_exhausted ? 1 : sources.lengths.size();
  Rows rows;
  for (;;) {
    for (const auto source : random.choices(probabilities, kBlock)) {
      const auto length = sources.lengths[source];
      if (given[source] >= length && strategy == StoppingStrategy::all_exhausted_without_replacement)
        continue;
      rows.push_back(sources.starts[source] + given[source] % length);
      if (++given[source] == length && ++exhausted == stop) return rows;
    }
  }
}

}  // namespace

ArrowDataset ArrowDataset::interleave(std::span<const ArrowDataset> datasets,
                                      std::span<const double> probabilities, std::uint64_t seed,
                                      StoppingStrategy strategy) {
  const auto all = concatenate(datasets);
  const auto sources = sources_of(datasets);
  if (probabilities.empty()) return all.select(in_turns(sources, strategy));
  check_probabilities(probabilities, sources, strategy);
  return all.select(drawn(sources, probabilities, seed, strategy));
}

}  // namespace lockstep
