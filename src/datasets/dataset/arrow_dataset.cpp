#include "lockstep/datasets/arrow_dataset.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "datasets/dataset/concatenate.hpp"
#include "datasets/dataset/dataset_access.hpp"
#include "datasets/dataset/from_rows.hpp"
#include "datasets/table/check_name.hpp"
#include "datasets/table/numpy_random.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

using Columns = std::vector<std::pair<std::string, Column>>;

void check_lengths(const Columns& columns) {
  for (const auto& [name, column] : columns) {
    if (column.size() == columns.front().second.size()) continue;
    throw UsageError(fmt::format(
        "the columns of a data set need the same number of rows, but '{}' has {} and '{}' has {}.",
        columns.front().first, columns.front().second.size(), name, column.size()));
  }
}

Features checked_features(const Columns& columns, const std::optional<Features>& features) {
  std::vector<Field> fields;
  for (const auto& [name, column] : columns) fields.push_back({name, column.type()});
  if (!features) return Features::from_fields(fields);
  const auto wanted = features->fields();
  const bool same =
      std::equal(wanted.begin(), wanted.end(), fields.begin(), fields.end(),
                 [](const Field& a, const Field& b) { return a.name == b.name && a.type == b.type; });
  if (!same) {
    throw UsageError("the features ask for " + DataType::struct_(wanted).text() + ", but the columns are " +
                     DataType::struct_(fields).text() + ". Use cast to convert them.");
  }
  return *features;
}

using Items = std::vector<std::pair<std::string, Feature>>;

/// The columns at these indices, in this order.
ArrowDataset select_columns_at(const ArrowDataset& dataset, const std::vector<std::size_t>& positions) {
  auto fresh = DatasetAccess::copy(dataset);
  const auto& from = DatasetAccess::state(dataset);
  fresh->columns.clear();
  Items items;
  for (const auto position : positions) {
    fresh->columns.push_back(from.columns[position]);
    items.push_back(from.features.items()[position]);
  }
  fresh->features = Features(std::move(items));
  return DatasetAccess::make(std::move(fresh));
}

}  // namespace

ArrowDataset::ArrowDataset() : state_(std::make_shared<const State>()) {}
ArrowDataset::ArrowDataset(std::shared_ptr<const State> state) : state_(std::move(state)) {}

ArrowDataset ArrowDataset::from_columns(Columns columns, const std::optional<Features>& features) {
  check_lengths(columns);
  auto state = std::make_shared<State>();
  state->features = checked_features(columns, features);
  if (!columns.empty()) state->rows = columns.front().second.size();
  state->columns = std::move(columns);
  return ArrowDataset(std::move(state));
}

std::int64_t ArrowDataset::num_rows() const noexcept { return state_->rows; }

std::int64_t ArrowDataset::num_columns() const noexcept {
  return static_cast<std::int64_t>(state_->columns.size());
}

std::vector<std::string> ArrowDataset::column_names() const { return state_->features.names(); }

bool ArrowDataset::has_column(std::string_view name) const noexcept {
  return state_->features.contains(name);
}

const Features& ArrowDataset::features() const noexcept { return state_->features; }
const std::string& ArrowDataset::split() const noexcept { return state_->split; }
const Columns& ArrowDataset::columns() const noexcept { return state_->columns; }

Column ArrowDataset::column(std::string_view name) const {
  return state_->columns[DatasetAccess::find(*this, name)].second;
}

Row ArrowDataset::row(std::int64_t index) const {
  if (index < 0 || index >= num_rows()) table::fail_row(index, num_rows());
  return {*this, index};
}

Row::Row(const ArrowDataset& dataset, std::int64_t index)
    : owner_(dataset.state_), columns_(&dataset.state_->columns), index_(index) {}

const Column& Row::column(std::string_view name) const {
  for (const auto& [column_name, column] : *columns_) {
    if (column_name == name) return column;
  }
  std::string known;
  for (const auto& one : *columns_) known += (known.empty() ? "'" : ", '") + one.first + "'";
  throw UsageError("there is no column '" + std::string(name) + "'; the columns are " + known + ".");
}

Value Row::operator[](std::string_view name) const { return column(name).value(index_); }

Value Row::value() const {
  Value::Fields fields;
  for (const auto& [name, column] : *columns_) fields.emplace_back(name, column.value(index_));
  return Value(std::move(fields));
}

ArrowDataset ArrowDataset::from_rows(std::span<const Value> rows, const std::optional<Features>& features) {
  return table::from_rows(rows, features, 0);
}

ArrowDataset ArrowDataset::concatenate(std::span<const ArrowDataset> datasets) {
  return concatenated(datasets, {});
}

ArrowDataset ArrowDataset::select(std::span<const std::int64_t> rows) const {
  for (const auto row : rows) {
    if (row < 0 || row >= num_rows()) table::fail_row(row, num_rows());
  }
  return DatasetAccess::with_rows(*this, std::ssize(rows),
                                  [&](const RowMap& map) { return map.select(rows); });
}

ArrowDataset ArrowDataset::slice(std::int64_t start, std::int64_t count) const {
  if (start < 0 || count < 0 || start > num_rows() - count) {
    throw UsageError(
        fmt::format("a slice of {} rows from row {} on is out of range for a data set of {} rows.", count,
                    start, num_rows()));
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
    throw UsageError(fmt::format(
        "shard {} of {} does not exist: shards are numbered from 0 to num_shards - 1.", index, num_shards));
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
  for (auto& [name, column] : fresh->columns) column = Column::concatenate({&column, 1});
  return ArrowDataset(std::move(fresh));
}

bool ArrowDataset::has_indices() const noexcept {
  return std::any_of(state_->columns.begin(), state_->columns.end(),
                     [](const auto& one) { return !one.second.rows().is_range(); });
}

ArrowDataset ArrowDataset::select_columns(std::span<const std::string> names) const {
  std::vector<std::size_t> positions;
  for (const auto& name : names) positions.push_back(DatasetAccess::find(*this, name));
  return select_columns_at(*this, positions);
}

ArrowDataset ArrowDataset::remove_columns(std::span<const std::string> names) const {
  std::set<std::size_t> gone;
  for (const auto& name : names) gone.insert(DatasetAccess::find(*this, name));
  std::vector<std::size_t> positions;
  for (std::size_t position = 0; position < state_->columns.size(); ++position) {
    if (!gone.contains(position)) positions.push_back(position);
  }
  return select_columns_at(*this, positions);
}

ArrowDataset ArrowDataset::rename_column(std::string_view from, std::string to) const {
  const auto position = DatasetAccess::find(*this, from);
  if (from != to && has_column(to))
    throw UsageError("there is a column '" + to + "' already: remove or rename it first.");
  auto fresh = DatasetAccess::copy(*this);
  auto items = fresh->features.items();
  items[position].first = to;
  fresh->columns[position].first = std::move(to);
  fresh->features = Features(std::move(items));
  return ArrowDataset(std::move(fresh));
}

ArrowDataset ArrowDataset::add_column(std::string name, Column column,
                                      const std::optional<Feature>& feature) const {
  if (num_columns() > 0 && column.size() != num_rows()) {
    throw UsageError(fmt::format("the new column '{}' has {} rows, but the data set has {}.", name,
                                 column.size(), num_rows()));
  }
  const Feature meaning = feature ? *feature : Feature(column.type());
  if (!(meaning.type() == column.type())) {
    throw UsageError("the new column '" + name + "' has the type " + column.type().text() +
                     ", but its feature says " + meaning.type().text() + ".");
  }
  auto items = state_->features.items();
  items.emplace_back(name, meaning);
  auto fresh = DatasetAccess::copy(*this);
  fresh->features = Features(std::move(items));
  fresh->rows = column.size();
  fresh->columns.emplace_back(std::move(name), std::move(column));
  return ArrowDataset(std::move(fresh));
}

ArrowDataset ArrowDataset::with_split(std::string name) const {
  table::check_name(name, "the split");
  auto fresh = DatasetAccess::copy(*this);
  fresh->split = std::move(name);
  return ArrowDataset(std::move(fresh));
}

std::string ArrowDataset::fingerprint() const {
  return DatasetAccess::fingerprint(*this, default_hash_memory());
}

std::vector<std::filesystem::path> ArrowDataset::files() const {
  std::vector<std::filesystem::path> files = state_->sources;
  const auto add = [&](const std::filesystem::path& path) {
    if (std::find(files.begin(), files.end(), path) == files.end()) files.push_back(path);
  };
  for (const auto& [name, column] : state_->columns) {
    if (!column.data()->source_files()) continue;
    for (const auto& part : column.data()->source_files()->parts) add(part.file->path());
  }
  return files;
}

}  // namespace lockstep
