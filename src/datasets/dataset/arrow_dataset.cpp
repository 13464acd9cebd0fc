#include "lockstep/datasets/arrow_dataset.hpp"

#include <algorithm>

#include "lockstep/core/error.hpp"
#include "state.hpp"

namespace lockstep {
namespace {

using Columns = std::vector<std::pair<std::string, Column>>;

void check_lengths(const Columns& columns) {
  for (const auto& [name, column] : columns) {
    if (column.size() == columns.front().second.size()) continue;
    throw UsageError("the columns of a data set need the same number of rows, but '" + columns.front().first +
                     "' has " + std::to_string(columns.front().second.size()) + " and '" + name + "' has " +
                     std::to_string(column.size()) + ".");
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

}  // namespace

std::shared_ptr<ArrowDataset::State> DatasetAccess::copy(const ArrowDataset& dataset) {
  const auto& from = state(dataset);
  auto fresh = std::make_shared<State>();
  fresh->columns = from.columns;
  fresh->features = from.features;
  fresh->rows = from.rows;
  fresh->split = from.split;
  fresh->sources = from.sources;
  return fresh;
}

std::size_t DatasetAccess::find(const ArrowDataset& dataset, std::string_view name) {
  const auto& columns = state(dataset).columns;
  for (std::size_t place = 0; place < columns.size(); ++place) {
    if (columns[place].first == name) return place;
  }
  // Throws, naming those that there are.
  static_cast<void>(state(dataset).features[name]);
  return columns.size();
}

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

}  // namespace lockstep
