#include "labels.hpp"

#include <algorithm>
#include <set>

#include "lockstep/core/error.hpp"
#include "lockstep/data/column_builder.hpp"

namespace texts {
namespace {

using lockstep::ArrowDataset;
using lockstep::Column;
using lockstep::DataError;
using lockstep::Feature;

bool is_text(const Column& column) { return column.type().is_text_or_binary(); }

/// The label of a row as it stands in the file: a name or a number.
lockstep::Value label_at(const Column& column, std::int64_t row, const std::string& what) {
  auto label = column.value(row);
  if (!label.is_null()) return label;
  throw DataError(what + ", row " + std::to_string(row) + ", has no label.");
}

Classes from_names(const Column& column, const std::string& what) {
  std::set<std::string> names;
  for (std::int64_t row = 0; row < column.size(); ++row) names.insert(label_at(column, row, what).text());
  return {.names = {names.begin(), names.end()}, .count = static_cast<std::int64_t>(names.size())};
}

Classes from_numbers(const Column& column, const std::string& what) {
  std::int64_t largest = -1;
  for (std::int64_t row = 0; row < column.size(); ++row) {
    const auto number = label_at(column, row, what).integer();
    if (number < 0) {
      throw DataError(what + ", row " + std::to_string(row) + ", has the label " + std::to_string(number) +
                      ": expected numbers from 0 on.");
    }
    largest = std::max(largest, number);
  }
  return {.names = {}, .count = largest + 1};
}

/// The number of a label, or one that is out of range.
std::int64_t number_of(const lockstep::Value& label, bool text, const Classes& classes) {
  if (!text) return label.integer();
  const auto place = std::lower_bound(classes.names.begin(), classes.names.end(), label.text());
  const bool found = place != classes.names.end() && *place == label.text();
  return found ? place - classes.names.begin() : classes.count;
}

Classes found_classes(const ArrowDataset& table, const std::string& column, const std::string& what) {
  const Feature& feature = table.features()[column];
  if (feature.kind() == Feature::Kind::class_label) {
    return {.names = feature.names(), .count = static_cast<std::int64_t>(feature.names().size())};
  }
  const Column labels = table.column(column);
  return is_text(labels) ? from_names(labels, what) : from_numbers(labels, what);
}

}  // namespace

Classes classes_of(const ArrowDataset& table, const std::string& column, const std::string& what) {
  const Classes classes = found_classes(table, column, what);
  if (classes.count >= 2) return classes;
  throw DataError(what + ": column '" + column + "' has one class only: expected two or more.");
}

ArrowDataset with_labels(const ArrowDataset& table, const std::string& column, const Classes& classes,
                         const std::string& what) {
  const Column labels = table.column(column);
  const bool text = is_text(labels);
  std::vector<std::int64_t> numbers;
  for (std::int64_t row = 0; row < labels.size(); ++row) {
    const auto label = label_at(labels, row, what);
    numbers.push_back(number_of(label, text, classes));
    if (numbers.back() >= 0 && numbers.back() < classes.count) continue;
    throw DataError(what + ", row " + std::to_string(row) + ": the label " + label.to_json() +
                    " is none of the " + std::to_string(classes.count) + " classes of the training data.");
  }
  return table.remove_columns({column}).add_column("labels", lockstep::make_column(numbers));
}

}  // namespace texts
