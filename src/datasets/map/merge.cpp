#include "merge.hpp"

#include <fmt/core.h>

#include <algorithm>

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

std::string list(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "'" : ", '") + name + "'";
  return text.empty() ? "none" : text;
}

/// The one length of all columns.
std::int64_t length_of(const Columns& made) {
  for (const auto& [name, column] : made) {
    if (column.size() == made.front().second.size()) continue;
    throw UsageError(
        fmt::format("the function returned columns of different lengths: '{}' has {} rows, '{}' has {}.",
                    made.front().first, made.front().second.size(), name, column.size()));
  }
  return made.front().second.size();
}

/// The source's columns that stay as they are must be as long as what the function returned.
void check_rows(const MapBatch& batch, const Columns& made, const std::vector<std::string>& kept) {
  const std::int64_t rows = length_of(made);
  if (rows == batch.size() || kept.empty()) return;
  throw UsageError(
      fmt::format("the function returned {} rows for {}, but the source's columns {} stay. Name them in "
                  "remove_columns, or return them too.",
                  rows, batch.size(), list(kept)));
}

std::vector<std::string> names_of(const std::vector<Field>& fields) {
  std::vector<std::string> names;
  for (const auto& field : fields) names.push_back(field.name);
  return names;
}

/// The type that nulls of either type fit into; nothing where values of one have no place in the other.
std::optional<DataType> unified(const DataType& one, const DataType& other);

std::optional<DataType> unified_lists(const DataType& one, const DataType& other) {
  const auto element = unified(one.element(), other.element());
  if (!element) return std::nullopt;
  if (one.kind() == TypeKind::fixed_size_list) return DataType::fixed_size_list(*element, one.width());
  return DataType::list(*element, one.kind() == TypeKind::large_list);
}

std::optional<DataType> unified_structures(const DataType& one, const DataType& other) {
  if (names_of(one.fields()) != names_of(other.fields())) return std::nullopt;
  std::vector<Field> fields = one.fields();
  for (std::size_t place = 0; place < fields.size(); ++place) {
    const auto type = unified(fields[place].type, other.fields()[place].type);
    if (!type) return std::nullopt;
    fields[place].type = *type;
  }
  return DataType::struct_(std::move(fields));
}

std::optional<DataType> unified(const DataType& one, const DataType& other) {
  if (one == other || other.kind() == TypeKind::null) return one;
  if (one.kind() == TypeKind::null) return other;
  if (one.kind() != other.kind() || one.width() != other.width()) return std::nullopt;
  if (one.is_list()) return unified_lists(one, other);
  if (one.kind() == TypeKind::struct_) return unified_structures(one, other);
  return std::nullopt;
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
    for (const auto& [name, type, nullable] : fields) {
      // Nulls have the type that the program says.
      const bool said = features_ && features_->contains(name);
      const auto type_said = said ? unified((*features_)[name].type(), type) : std::nullopt;
      fields_.push_back({name, type_said.value_or(type)});
    }
    return true;
  }
  if (names_of(fields) != names_of(fields_)) {
    throw UsageError(fmt::format("the result has the columns {}, but {} before.", list(names_of(fields)),
                                 list(names_of(fields_))));
  }
  bool changed = false;
  for (std::size_t place = 0; place < fields.size(); ++place) {
    const auto& before = fields_[place].type;
    const auto type = unified(before, fields[place].type);
    if (!type) {
      throw UsageError(
          fmt::format("the column '{}' is of type {}, but of type {} before. Return the same type always: "
                      "make_column<T>, or a ColumnBuilder with a type.",
                      fields[place].name, fields[place].type.text(), before.text()));
    }
    changed = changed || !(*type == before);
    fields_[place].type = *type;
  }
  return changed;
}

bool ResultColumns::add(const Columns& part) {
  std::vector<Field> fields;
  for (const auto& [name, column] : part) fields.push_back({name, column.type()});
  return add(fields);
}

Columns ResultColumns::aligned(Columns part) const {
  for (std::size_t place = 0; place < part.size(); ++place) {
    auto& [name, column] = part[place];
    if (column.type() == fields_[place].type) continue;
    column = table::converted_column(column, Feature(fields_[place].type), name);
  }
  return part;
}

Feature ResultColumns::feature_of(const Field& field) const {
  if (features_ && features_->contains(field.name)) return (*features_)[field.name];
  if (source_.contains(field.name) && source_[field.name].type() == field.type) return source_[field.name];
  return Feature(field.type);
}

ArrowDataset ResultColumns::joined(std::vector<Columns> parts) const {
  std::vector<std::vector<Column>> pieces(fields_.size());
  for (auto& part : parts) {
    auto columns = aligned(std::move(part));
    for (std::size_t place = 0; place < columns.size(); ++place)
      pieces[place].push_back(std::move(columns[place].second));
  }
  Columns columns;
  std::vector<std::pair<std::string, Feature>> meanings;
  for (std::size_t place = 0; place < fields_.size(); ++place) {
    const auto& field = fields_[place];
    columns.emplace_back(field.name, pieces[place].empty() ? ColumnBuilder(field.type).finish()
                                                           : Column::concatenate(pieces[place]));
    meanings.emplace_back(field.name, feature_of(field));
  }
  return ArrowDataset::from_columns(std::move(columns), Features(std::move(meanings)));
}

}  // namespace lockstep
