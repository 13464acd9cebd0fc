#include <algorithm>
#include <set>

#include "lockstep/core/error.hpp"
#include "state.hpp"

namespace lockstep {
namespace {

using Items = std::vector<std::pair<std::string, Feature>>;

/// The columns at these places, in this order.
ArrowDataset picked(const ArrowDataset& dataset, const std::vector<std::size_t>& places) {
  auto fresh = DatasetAccess::copy(dataset);
  const auto& from = DatasetAccess::state(dataset);
  fresh->columns.clear();
  Items items;
  for (const auto place : places) {
    fresh->columns.push_back(from.columns[place]);
    items.push_back(from.features.items()[place]);
  }
  fresh->features = Features(std::move(items));
  return DatasetAccess::make(std::move(fresh));
}

}  // namespace

ArrowDataset ArrowDataset::select_columns(std::span<const std::string> names) const {
  std::vector<std::size_t> places;
  for (const auto& name : names) places.push_back(DatasetAccess::find(*this, name));
  return picked(*this, places);
}

ArrowDataset ArrowDataset::remove_columns(std::span<const std::string> names) const {
  std::set<std::size_t> gone;
  for (const auto& name : names) gone.insert(DatasetAccess::find(*this, name));
  std::vector<std::size_t> places;
  for (std::size_t place = 0; place < state_->columns.size(); ++place) {
    if (!gone.contains(place)) places.push_back(place);
  }
  return picked(*this, places);
}

ArrowDataset ArrowDataset::rename_column(std::string_view from, std::string to) const {
  const auto place = DatasetAccess::find(*this, from);
  if (from != to && has_column(to))
    throw UsageError("there is a column '" + to + "' already: remove or rename it first.");
  auto fresh = DatasetAccess::copy(*this);
  auto items = fresh->features.items();
  items[place].first = to;
  fresh->columns[place].first = std::move(to);
  fresh->features = Features(std::move(items));
  return ArrowDataset(std::move(fresh));
}

ArrowDataset ArrowDataset::add_column(std::string name, Column column,
                                      const std::optional<Feature>& feature) const {
  if (num_columns() > 0 && column.size() != num_rows()) {
    throw UsageError("the new column '" + name + "' has " + std::to_string(column.size()) +
                     " rows, but the data set has " + std::to_string(num_rows()) + ".");
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
  auto fresh = DatasetAccess::copy(*this);
  fresh->split = std::move(name);
  return ArrowDataset(std::move(fresh));
}

}  // namespace lockstep
