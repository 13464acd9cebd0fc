#include "lockstep/datasets/features.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/json.hpp"
#include "core/json_text.hpp"
#include "core/text.hpp"
#include "datasets/table/check_name.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

/// Different names, which JSON can hold.
void check_names(std::vector<std::string> names, const char* what) {
  for (const auto& name : names) table::check_name(name, what);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) throw UsageError(std::string(what) + " '" + *twice + "' is given twice.");
}

}  // namespace

Feature::Feature(const DataType& type) : type_(type) {
  if (type.is_list()) kind_ = Kind::list;
  if (type.kind() == TypeKind::struct_) kind_ = Kind::struct_;
  for (const auto& field : type.fields()) children_.emplace_back(field.type);
}

Feature Feature::class_label(std::vector<std::string> names) {
  check_names(names, "the class");
  Feature feature{DataType(TypeKind::int64)};
  feature.kind_ = Kind::class_label;
  feature.names_ = std::move(names);
  return feature;
}

Feature Feature::list(Feature element, std::int32_t length, bool large) {
  Feature feature;
  feature.kind_ = Kind::list;
  feature.type_ =
      length >= 0 ? DataType::fixed_size_list(element.type(), length) : DataType::list(element.type(), large);
  feature.children_.push_back(std::move(element));
  return feature;
}

Feature Feature::struct_(Features fields) {
  Feature feature;
  feature.kind_ = Kind::struct_;
  feature.type_ = DataType::struct_(fields.fields());
  for (const auto& [name, child] : fields.items()) feature.children_.push_back(child);
  return feature;
}

Feature Feature::other(std::string json, DataType storage) {
  if (!nlohmann::json::accept(json))
    throw UsageError("a feature's description is not JSON: '" + utf8_text(json) + "'.");
  Feature feature;
  feature.kind_ = Kind::other;
  feature.type_ = std::move(storage);
  feature.json_ = std::move(json);
  return feature;
}

std::int64_t Feature::class_number(std::string_view name) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found == names_.end()) {
    throw UsageError(
        fmt::format("'{}' is not one of the {} classes ({}).", name, names_.size(), quote_names(names_)));
  }
  return found - names_.begin();
}

const std::string& Feature::class_name(std::int64_t number) const {
  if (number < 0 || number >= static_cast<std::int64_t>(names_.size())) {
    throw UsageError(
        fmt::format("there is no class {}: the {} classes are numbered from 0.", number, names_.size()));
  }
  return names_[static_cast<std::size_t>(number)];
}

Features::Features(std::vector<std::pair<std::string, Feature>> items) : items_(std::move(items)) {
  check_names(names(), "the column");
}

Features Features::from_fields(const std::vector<Field>& fields) {
  std::vector<std::pair<std::string, Feature>> items;
  for (const auto& field : fields) items.emplace_back(field.name, Feature(field.type));
  return Features(std::move(items));
}

std::vector<Field> Features::fields() const {
  std::vector<Field> fields;
  for (const auto& [name, feature] : items_) fields.push_back({name, feature.type()});
  return fields;
}

std::vector<std::string> Features::names() const {
  std::vector<std::string> names;
  for (const auto& item : items_) names.push_back(item.first);
  return names;
}

bool Features::contains(std::string_view name) const noexcept {
  return std::any_of(items_.begin(), items_.end(), [&](const auto& item) { return item.first == name; });
}

const Feature& Features::operator[](std::string_view name) const {
  for (const auto& item : items_) {
    if (item.first == name) return item.second;
  }
  throw UsageError("there is no column '" + std::string(name) + "'; the columns are " + quote_names(names()) +
                   ".");
}

}  // namespace lockstep
