#include "datasets/map/result_columns.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.hpp"
#include "datasets/arrow/arrow_conversions.hpp"
#include "datasets/readers/readers.hpp"
#include "datasets/table/convert.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

const Column* find(const Columns& columns, const std::string& name) {
  for (const auto& [each, column] : columns) {
    if (each == name) return &column;
  }
  return nullptr;
}

/// The common length of all columns.
std::int64_t length_of(const Columns& made) {
  for (const auto& [name, column] : made) {
    if (column.size() == made.front().second.size()) continue;
    throw UsageError(
        fmt::format("the function returned columns of different lengths: '{}' has {} rows, '{}' has {}.",
                    made.front().first, made.front().second.size(), name, column.size()));
  }
  return made.front().second.size();
}

/// Requires that the source's kept columns have as many rows as the function returned.
void check_rows(const MapBatch& batch, const Columns& made, const std::vector<std::string>& kept) {
  const std::int64_t rows = length_of(made);
  if (rows == batch.size() || kept.empty()) return;
  throw UsageError(
      fmt::format("the function returned {} rows for {}, but the source's columns {} stay. Name them in "
                  "remove_columns, or return them too.",
                  rows, batch.size(), quote_names(kept)));
}

std::vector<std::string> names_of(const std::vector<Field>& fields) {
  std::vector<std::string> names;
  for (const auto& field : fields) names.push_back(field.name);
  return names;
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

ResultColumns::ResultColumns(Features source, std::optional<Features> features)
    : source_(std::move(source)), features_(std::move(features)) {}

bool ResultColumns::add(const std::vector<Field>& fields) {
  if (!known_) {
    known_ = true;
    for (const auto& [name, type, nullable] : fields) fields_.push_back({name, type});
    return true;
  }
  if (names_of(fields) != names_of(fields_)) {
    throw UsageError(fmt::format("the result has the columns {}, but {} before.",
                                 quote_names(names_of(fields)), quote_names(names_of(fields_))));
  }
  bool changed = false;
  for (std::size_t index = 0; index < fields.size(); ++index) {
    const auto& before = fields_[index].type;
    const auto type = arrow_file::unified(before, fields[index].type);
    if (!type) {
      throw UsageError(
          fmt::format("the column '{}' is of type {}, but of type {} before. Return the same type always: "
                      "make_column<T>, or a ColumnBuilder with a type.",
                      fields[index].name, fields[index].type.text(), before.text()));
    }
    changed = changed || !(*type == before);
    fields_[index].type = *type;
  }
  return changed;
}

bool ResultColumns::add(const Columns& part) {
  std::vector<Field> fields;
  for (const auto& [name, column] : part) fields.push_back({name, column.type()});
  return add(fields);
}

void ResultColumns::take_types_for_nulls() {
  for (auto& [name, type, nullable] : fields_) {
    if (type.kind() == TypeKind::null && source_.contains(name)) type = source_[name].type();
  }
}

Columns ResultColumns::aligned(Columns part) const {
  for (std::size_t index = 0; index < part.size(); ++index) {
    auto& [name, column] = part[index];
    if (column.type() == fields_[index].type) continue;
    column = table::converted_column(column, Feature(fields_[index].type), name);
  }
  return part;
}

Feature ResultColumns::feature_of(const Field& field) const {
  if (features_ && features_->contains(field.name)) return (*features_)[field.name];
  if (source_.contains(field.name) && source_[field.name].type() == field.type) return source_[field.name];
  return Feature(field.type);
}

ArrowDataset ResultColumns::join_parts(std::vector<Columns> parts) const {
  std::vector<std::vector<Column>> pieces(fields_.size());
  for (auto& part : parts) {
    auto columns = aligned(std::move(part));
    for (std::size_t index = 0; index < columns.size(); ++index)
      pieces[index].push_back(std::move(columns[index].second));
  }
  Columns columns;
  std::vector<std::pair<std::string, Feature>> meanings;
  for (std::size_t index = 0; index < fields_.size(); ++index) {
    const auto& field = fields_[index];
    columns.emplace_back(field.name, pieces[index].empty() ? ColumnBuilder(field.type).finish()
                                                           : Column::concatenate(pieces[index]));
    meanings.emplace_back(field.name, feature_of(field));
  }
  return ArrowDataset::from_columns(std::move(columns), Features(std::move(meanings)));
}

}  // namespace lockstep
