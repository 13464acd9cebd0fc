#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "datasets/dataset/dataset_access.hpp"
#include "datasets/table/numpy_random.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

using Rows = std::vector<std::int64_t>;

struct Parts {
  Rows train;
  Rows test;
};

struct Sizes {
  std::int64_t train;
  std::int64_t test;
};

void check_share(const SplitSize& share, const char* name, std::int64_t rows) {
  const bool fits =
      share.rows() ? *share.rows() > 0 && *share.rows() < rows : share.fraction() > 0 && share.fraction() < 1;
  if (fits) return;
  throw UsageError(fmt::format(
      "train_test_split: {} is {}, but must be a number of rows from 1 to {} or a fraction between 0 and 1.",
      name, share.rows() ? std::to_string(*share.rows()) : std::to_string(share.fraction()), rows - 1));
}

std::int64_t counted(const SplitSize& share, std::int64_t rows, double (*rounded)(double)) {
  if (share.rows()) return *share.rows();
  return static_cast<std::int64_t>(rounded(share.fraction() * static_cast<double>(rows)));
}

double upwards(double value) { return std::ceil(value); }
double downwards(double value) { return std::floor(value); }

Sizes sizes_of(const SplitOptions& options, std::int64_t rows) {
  auto test_size = options.test_size;
  if (!test_size && !options.train_size) test_size = 0.25;
  if (test_size) check_share(*test_size, "test_size", rows);
  if (options.train_size) check_share(*options.train_size, "train_size", rows);
  const auto test =
      test_size ? counted(*test_size, rows, upwards) : rows - counted(*options.train_size, rows, downwards);
  const auto train = options.train_size ? counted(*options.train_size, rows, downwards) : rows - test;
  if (train + test > rows || train == 0) {
    throw UsageError(
        fmt::format("train_test_split: {} rows for training and {} for testing do not fit into {} rows.",
                    train, test, rows));
  }
  return {train, test};
}

/// Draws without replacement, about in proportion to the classes; what rounding leaves goes to the largest
/// remainders, ties at random.
Rows class_shares(const Rows& counts, std::int64_t draws, table::NumpyRandom& random) {
  const auto all = static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
  Rows shares;
  std::map<double, Rows, std::greater<>> remainders;
  for (std::size_t index = 0; index < counts.size(); ++index) {
    const auto exact = static_cast<double>(draws * counts[index]) / all;
    shares.push_back(static_cast<std::int64_t>(exact));
    remainders[exact - std::floor(exact)].push_back(static_cast<std::int64_t>(index));
  }
  auto missing = draws - std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
  for (const auto& [remainder, indices] : remainders) {
    if (missing == 0) break;
    const auto now = std::min<std::int64_t>(std::ssize(indices), missing);
    for (const auto index : random.sample(indices, now)) ++shares[static_cast<std::size_t>(index)];
    missing -= now;
  }
  return shares;
}

/// Rows without a label form the last class, as in `datasets`.
std::vector<Rows> rows_by_class(const ColumnView<std::int64_t>& labels) {
  std::map<std::int64_t, Rows> classes;
  Rows without;
  for (std::int64_t row = 0; row < labels.size(); ++row)
    (labels.is_null(row) ? without : classes[labels[row]]).push_back(row);
  std::vector<Rows> rows;
  for (auto& [label, members] : classes) rows.push_back(std::move(members));
  if (!without.empty()) rows.push_back(std::move(without));
  return rows;
}

void check_classes(const std::vector<Rows>& classes, const Sizes& sizes, const std::string& column) {
  const auto count = std::ssize(classes);
  const bool single =
      std::any_of(classes.begin(), classes.end(), [](const Rows& rows) { return rows.size() < 2; });
  if (!single && sizes.train >= count && sizes.test >= count) return;
  throw UsageError(
      fmt::format("train_test_split: stratifying by '{}' needs two rows of each of its {} classes, and parts "
                  "of at least as many rows; they have {} and {}.",
                  column, count, sizes.train, sizes.test));
}

void permute(Rows& rows, table::NumpyRandom& random) { random.shuffle(rows); }

/// The first split of scikit-learn's StratifiedShuffleSplit, as in `datasets`.
Parts stratified(const std::vector<Rows>& classes, const Sizes& sizes, table::NumpyRandom& random) {
  Rows counts;
  for (const auto& rows : classes) counts.push_back(std::ssize(rows));
  const auto train = class_shares(counts, sizes.train, random);
  Rows left = counts;
  for (std::size_t index = 0; index < left.size(); ++index) left[index] -= train[index];
  const auto test = class_shares(left, sizes.test, random);
  Parts parts;
  for (std::size_t index = 0; index < classes.size(); ++index) {
    const auto order = random.permutation(counts[index]);
    for (std::int64_t drawn = 0; drawn < train[index] + test[index]; ++drawn) {
      const auto row = classes[index][static_cast<std::size_t>(order[static_cast<std::size_t>(drawn)])];
      (drawn < train[index] ? parts.train : parts.test).push_back(row);
    }
  }
  permute(parts.train, random);
  permute(parts.test, random);
  return parts;
}

Parts in_order(const Sizes& sizes, const Rows& order, bool test_first) {
  const auto first = test_first ? sizes.test : sizes.train;
  const auto second = test_first ? sizes.train : sizes.test;
  Rows head(order.begin(), order.begin() + first);
  Rows tail(order.begin() + first, order.begin() + first + second);
  return test_first ? Parts{std::move(tail), std::move(head)} : Parts{std::move(head), std::move(tail)};
}

Rows numbers(std::int64_t count) {
  Rows rows(static_cast<std::size_t>(count));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

Parts parts_of(const ArrowDataset& dataset, const SplitOptions& options, const Sizes& sizes) {
  table::NumpyRandom random(options.seed);
  const auto& by = options.stratify_by_column;
  if (by.empty()) {
    return in_order(sizes,
                    options.shuffle ? random.permutation(dataset.num_rows()) : numbers(dataset.num_rows()),
                    options.shuffle);
  }
  if (!options.shuffle) throw UsageError("train_test_split: stratifying needs shuffle = true.");
  if (dataset.features()[by].kind() != Feature::Kind::class_label) {
    throw UsageError("train_test_split: '" + by +
                     "' is not a ClassLabel column; make it one with class_encode_column.");
  }
  const auto classes = rows_by_class(dataset.column<std::int64_t>(by));
  check_classes(classes, sizes, by);
  return stratified(classes, sizes, random);
}

}  // namespace

ArrowDataset::Split ArrowDataset::train_test_split(const SplitOptions& options) const {
  if (num_rows() == 0) return {*this, *this};
  const auto sizes = sizes_of(options, num_rows());
  const auto parts = parts_of(*this, options, sizes);
  return {select(parts.train), select(parts.test)};
}

}  // namespace lockstep
