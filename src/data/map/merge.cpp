#include "merge.hpp"

#include <algorithm>

#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

const Column* find(const Columns& columns, const std::string& name) {
  for (const auto& [each, column] : columns) {
    if (each == name) return &column;
  }
  return nullptr;
}

std::string list(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "'" : ", '") + name + "'";
  return text.empty() ? "none" : text;
}

/// The one length of all columns.
std::int64_t length_of(const Columns& made) {
  for (const auto& [name, column] : made) {
    if (column.size() == made.front().second.size()) continue;
    throw UsageError("the function returned columns of different lengths: '" + made.front().first + "' has " +
                     std::to_string(made.front().second.size()) + " rows, '" + name + "' has " +
                     std::to_string(column.size()) + ".");
  }
  return made.front().second.size();
}

/// The source's columns that stay as they are must be as long as what the function returned.
void check_rows(const MapBatch& batch, const Columns& made, const std::vector<std::string>& kept) {
  const std::int64_t rows = length_of(made);
  if (rows == batch.size() || kept.empty()) return;
  throw UsageError("the function returned " + std::to_string(rows) + " rows for " +
                   std::to_string(batch.size()) + ", but the source's columns " + list(kept) +
                   " stay. Name them in remove_columns, or return them too.");
}

Feature feature_of(const std::string& name, const Column& column, const Features& source,
                   const std::optional<Features>& features) {
  if (features && features->contains(name)) return (*features)[name];
  if (source.contains(name) && source[name].type() == column.type()) return source[name];
  return Feature(column.type());
}

}  // namespace

Columns merge_columns(const MapBatch& batch, Columns made, const std::vector<std::string>& removed) {
  Columns result;
  std::vector<std::string> kept;
  for (const auto& [name, column] : batch.rows.columns()) {
    const Column* replaced = find(made, name);
    const bool goes = std::find(removed.begin(), removed.end(), name) != removed.end();
    if (goes) continue;
    if (replaced == nullptr) kept.push_back(name);
    result.emplace_back(name, replaced == nullptr ? column : *replaced);
  }
  if (!made.empty()) check_rows(batch, made, kept);
  for (auto& [name, column] : made) {
    if (find(result, name) == nullptr) result.emplace_back(name, std::move(column));
  }
  return result;
}

void ColumnsCollector::add(Columns part) {
  std::vector<std::string> names;
  for (const auto& [name, column] : part) names.push_back(name);
  if (columns_.empty()) {
    names_ = names;
    columns_.resize(names_.size());
  }
  if (names != names_)
    throw UsageError("the result has the columns " + list(names) + ", but " + list(names_) + " before.");
  for (std::size_t i = 0; i < part.size(); ++i) {
    auto& before = columns_[i];
    Column& column = part[i].second;
    if (!before.empty() && !(before.front().type() == column.type())) {
      throw UsageError("the column '" + names_[i] + "' is of type " + column.type().text() +
                       ", but of type " + before.front().type().text() +
                       " before. Return the same type always: make_column<T>, or a ColumnBuilder with a "
                       "type where all values of a batch may be null.");
    }
    before.push_back(std::move(column));
  }
}

ArrowDataset ColumnsCollector::finish(const Features& source, const std::optional<Features>& features) const {
  Columns columns;
  std::vector<std::pair<std::string, Feature>> meanings;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    columns.emplace_back(names_[i], Column::concatenate(columns_[i]));
    meanings.emplace_back(names_[i], feature_of(names_[i], columns.back().second, source, features));
  }
  return ArrowDataset::from_columns(std::move(columns), Features(std::move(meanings)));
}

}  // namespace lockstep
