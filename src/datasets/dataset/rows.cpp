#include <algorithm>
#include <iterator>

#include "datasets/table/numpy_random.hpp"
#include "lockstep/core/error.hpp"
#include "state.hpp"

namespace lockstep {

ArrowDataset ArrowDataset::select(std::span<const std::int64_t> rows) const {
  for (const auto row : rows) {
    if (row < 0 || row >= num_rows()) table::fail_row(row, num_rows());
  }
  return DatasetAccess::with_rows(*this, std::ssize(rows),
                                  [&](const RowMap& map) { return map.select(rows); });
}

ArrowDataset ArrowDataset::slice(std::int64_t start, std::int64_t count) const {
  if (start < 0 || count < 0 || start > num_rows() - count) {
    throw UsageError("a slice of " + std::to_string(count) + " rows from row " + std::to_string(start) +
                     " on does not lie in a data set of " + std::to_string(num_rows()) + " rows.");
  }
  return DatasetAccess::with_rows(*this, count, [&](const RowMap& map) { return map.slice(start, count); });
}

ArrowDataset ArrowDataset::skip(std::int64_t count) const {
  const auto start = std::clamp<std::int64_t>(count, 0, num_rows());
  return slice(start, num_rows() - start);
}

ArrowDataset ArrowDataset::take(std::int64_t count) const {
  return slice(0, std::clamp<std::int64_t>(count, 0, num_rows()));
}

ArrowDataset ArrowDataset::shard(std::int64_t num_shards, std::int64_t index, bool contiguous) const {
  if (num_shards < 1 || index < 0 || index >= num_shards) {
    throw UsageError("shard " + std::to_string(index) + " of " + std::to_string(num_shards) +
                     " does not exist: shards are numbered from 0 to num_shards - 1.");
  }
  if (contiguous) {
    const auto least = num_rows() / num_shards;
    const auto longer = num_rows() % num_shards;
    return slice(least * index + std::min(index, longer), least + (index < longer ? 1 : 0));
  }
  std::vector<std::int64_t> rows;
  for (auto row = index; row < num_rows(); row += num_shards) rows.push_back(row);
  return select(rows);
}

ArrowDataset ArrowDataset::filter(const std::function<bool(const Row&)>& keep) const {
  return filter_rows([&](std::int64_t row) { return keep(Row(*this, row)); });
}

ArrowDataset ArrowDataset::filter_rows(const std::function<bool(std::int64_t)>& keep) const {
  std::vector<std::int64_t> rows;
  for (std::int64_t row = 0; row < num_rows(); ++row) {
    if (keep(row)) rows.push_back(row);
  }
  return select(rows);
}

ArrowDataset ArrowDataset::shuffle(std::uint64_t seed) const {
  return select(table::NumpyRandom(seed).permutation(num_rows()));
}

ArrowDataset ArrowDataset::flatten_indices() const {
  auto fresh = DatasetAccess::copy(*this);
  for (auto& [name, column] : fresh->columns) column = Column(column.flatten());
  return ArrowDataset(std::move(fresh));
}

bool ArrowDataset::has_indices() const noexcept {
  return std::any_of(state_->columns.begin(), state_->columns.end(),
                     [](const auto& one) { return !one.second.rows().is_range(); });
}

}  // namespace lockstep
