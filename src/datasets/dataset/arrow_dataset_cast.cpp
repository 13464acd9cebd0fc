#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_set>

#include "core/utf8_check.hpp"
#include "datasets/dataset/dataset_access.hpp"
#include "datasets/table/convert.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/datasets/column_builder.hpp"

namespace lockstep {
namespace {

void check_same_columns(const ArrowDataset& dataset, const Features& features) {
  auto have = dataset.column_names();
  auto want = features.names();
  std::sort(have.begin(), have.end());
  std::sort(want.begin(), want.end());
  if (have == want) return;
  throw UsageError(
      fmt::format("cast needs each column once: the columns are '{}', but the features name '{}'.",
                  fmt::join(have, "', '"), fmt::join(want, "', '")));
}

[[noreturn]] void refuse_as_classes(std::string_view column, const std::string& type) {
  throw UsageError(
      fmt::format("the column '{}' has values of the type '{}', which cannot name classes: text, "
                  "integers, booleans and dates can.",
                  column, type));
}

/// Text of Arrow and Parquet files may hold any bytes.
[[noreturn]] void refuse_name(const ArrowDataset& dataset, std::string_view column, std::int64_t row,
                              std::string_view text) {
  const auto files = dataset.files();
  const auto file = files.size() == 1 ? "'" + files.front().string() + "': " : "";
  throw DataError(fmt::format("{}column '{}', row {}: '{}' is not UTF-8 text and cannot name a class.", file,
                              column, row, utf8_text(text)));
}

/// A value of a column of text, integers or booleans as text; other types cannot name classes.
std::string class_text(const Value& value, std::string_view column) {
  if (const auto* text = std::get_if<std::string>(&value.variant())) return *text;
  if (const auto* number = std::get_if<std::int64_t>(&value.variant())) return std::to_string(*number);
  if (const auto* number = std::get_if<std::uint64_t>(&value.variant())) return std::to_string(*number);
  // As Python prints booleans.
  if (const auto* truth = std::get_if<bool>(&value.variant())) return *truth ? "True" : "False";
  refuse_as_classes(column, value.kind());
}

Column class_texts(const Column& column, std::string_view name) {
  // The values of dates and times are their integers, which would become the names.
  const auto& type = column.type();
  if (type.kind() == TypeKind::date32 || type.kind() == TypeKind::date64)
    return table::converted_column(column, Feature(DataType(TypeKind::utf8)), name);
  if (type.is_temporal()) refuse_as_classes(name, type.text());
  ColumnBuilder texts{DataType(TypeKind::utf8)};
  for (std::int64_t row = 0; row < column.size(); ++row) {
    const auto value = column.value(row);
    if (value.is_null()) {
      texts.append_null();
    } else {
      texts.append(class_text(value, name));
    }
  }
  return texts.finish();
}

}  // namespace

ArrowDataset ArrowDataset::cast(const Features& features) const {
  check_same_columns(*this, features);
  auto fresh = DatasetAccess::copy(*this);
  fresh->features = features;
  fresh->columns.clear();
  for (const auto& [name, feature] : features.items()) {
    const auto old = column(name);
    const bool same = this->features()[name] == feature;
    fresh->columns.emplace_back(name, same ? old : table::converted_column(old, feature, name));
  }
  return ArrowDataset(std::move(fresh));
}

ArrowDataset ArrowDataset::cast_column(std::string_view name, const Feature& feature) const {
  auto items = features().items();
  items[DatasetAccess::find(*this, name)].second = feature;
  return cast(Features(std::move(items)));
}

ArrowDataset ArrowDataset::class_encode_column(std::string_view name) const {
  const auto index = DatasetAccess::find(*this, name);
  // Its numbers would become the names.
  if (features()[name].kind() == Feature::Kind::class_label)
    throw UsageError("the column '" + std::string(name) + "' is a ClassLabel already.");
  const auto texts = class_texts(column(name), name);
  const auto view = texts.view<std::string_view>();
  std::set<std::string, std::less<>> names;
  for (std::int64_t row = 0; row < view.size(); ++row) {
    const auto text = view.get(row);
    if (text && first_not_utf8(*text) != std::string_view::npos) refuse_name(*this, name, row, *text);
    if (text) names.emplace(*text);
  }
  const auto feature = Feature::class_label({names.begin(), names.end()});
  auto fresh = DatasetAccess::copy(*this);
  auto items = features().items();
  items[index].second = feature;
  fresh->features = Features(std::move(items));
  fresh->columns[index].second = table::converted_column(texts, feature, name);
  return ArrowDataset(std::move(fresh));
}

std::vector<Value> ArrowDataset::unique(std::string_view name) const {
  const auto values = column(name);
  std::unordered_set<std::string> seen;
  std::vector<Value> different;
  for (std::int64_t row = 0; row < values.size(); ++row) {
    auto value = values.value(row);
    // The kind is part of the key: text may look like a number.
    if (seen.insert(value.kind() + value.to_json()).second) different.push_back(std::move(value));
  }
  return different;
}

}  // namespace lockstep
