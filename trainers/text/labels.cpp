#include "labels.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <set>
#include <unordered_map>
#include <variant>

#include "lockstep/core/error.hpp"
#include "lockstep/datasets/column_builder.hpp"
#include "lockstep/models/class_names.hpp"

namespace texts {
namespace {

using lockstep::ArrowDataset;
using lockstep::Column;
using lockstep::DataError;
using lockstep::Feature;
using lockstep::models::are_class_names;
using lockstep::models::placeholder_class_names;

bool is_text(const Column& column) { return column.type().is_text_or_binary(); }

/// The label of a row as stored in the file: a name or a number.
lockstep::Value label_at(const Column& column, std::int64_t row, const std::string& what) {
  auto label = column.value(row);
  if (!label.is_null()) return label;
  throw DataError(fmt::format("{}, row {}, has no label.", what, row));
}

Classes from_names(const Column& column, const std::string& what) {
  std::set<std::string> names;
  for (std::int64_t row = 0; row < column.size(); ++row) names.insert(label_at(column, row, what).text());
  return {.names = {names.begin(), names.end()}, .count = static_cast<std::int64_t>(names.size())};
}

/// The number of a class without a name, where false and true are 0 and 1; none for any other label.
std::optional<std::int64_t> number_of(const lockstep::Value& label) {
  if (const auto* flag = std::get_if<bool>(&label.variant())) return *flag ? 1 : 0;
  if (!label.is_number() || std::trunc(label.number()) != label.number()) return std::nullopt;
  return label.integer();
}

Classes from_numbers(const Column& column, const std::string& what) {
  std::int64_t largest = -1;
  for (std::int64_t row = 0; row < column.size(); ++row) {
    const auto label = label_at(column, row, what);
    const auto number = number_of(label);
    if (!number || *number < 0) {
      throw DataError(fmt::format("{}, row {}, has the label {}: expected names, or numbers from 0 on.", what,
                                  row, label.to_json()));
    }
    largest = std::max(largest, *number);
  }
  return {.names = {}, .count = largest + 1};
}

/// Maps the labels of one column to class numbers.
class LabelNumbers {
 public:
  LabelNumbers(const Feature& feature, bool text, const Classes& classes)
      : text_(text), none_(classes.count), numbers_(by_name(classes)) {
    if (feature.kind() != Feature::Kind::class_label || classes.names.empty()) return;
    for (const auto& name : feature.names()) declared_.push_back(number_of(name));
  }

  /// The number; out of range if the label is not one of the classes.
  std::int64_t operator()(const lockstep::Value& label) const {
    if (text_) return number_of(label.text());
    const std::int64_t number = texts::number_of(label).value_or(none_);
    if (declared_.empty()) return number;
    return number >= 0 && number < std::ssize(declared_) ? declared_[static_cast<std::size_t>(number)]
                                                         : none_;
  }

 private:
  using Numbers = std::unordered_map<std::string, std::int64_t>;

  static Numbers by_name(const Classes& classes) {
    Numbers numbers;
    std::int64_t number = 0;
    for (const auto& name : classes.names) numbers.emplace(name, number++);
    return numbers;
  }

  std::int64_t number_of(const std::string& name) const {
    const auto found = numbers_.find(name);
    return found == numbers_.end() ? none_ : found->second;
  }

  bool text_;
  std::int64_t none_;
  Numbers numbers_;
  /// The class numbers of a ClassLabel's names, whose order may differ from that of the classes.
  std::vector<std::int64_t> declared_;
};

Classes found_classes(const ArrowDataset& table, const std::string& column, const std::string& what) {
  const Feature& feature = table.features()[column];
  if (feature.kind() == Feature::Kind::class_label) {
    return {.names = feature.names(), .count = static_cast<std::int64_t>(feature.names().size())};
  }
  const Column labels = table.column(column);
  return is_text(labels) ? from_names(labels, what) : from_numbers(labels, what);
}

/// At most as many of the names as fit a line.
std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 20;
  const auto end = names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kMost));
  std::string text = fmt::format("'{}'", fmt::join(names.begin(), end, "', '"));
  if (names.size() > kMost) text += fmt::format(" and {} more", names.size() - kMost);
  return text;
}

/// The names that are not in `in`.
std::vector<std::string> names_missing(const std::vector<std::string>& names,
                                       const std::vector<std::string>& in) {
  const std::set<std::string> known(in.begin(), in.end());
  std::vector<std::string> missing;
  std::copy_if(names.begin(), names.end(), std::back_inserter(missing),
               [&](const std::string& name) { return !known.contains(name); });
  return missing;
}

/// A duplicate name does not determine a label's number.
void check_names_differ(const std::vector<std::string>& names, const std::string& model_folder) {
  std::set<std::string> seen;
  for (const auto& name : names) {
    if (seen.insert(name).second) continue;
    throw DataError(fmt::format(
        "{}: config.json gives the name '{}' to two classes: expected different names", model_folder, name));
  }
}

}  // namespace

Classes classes_of(const ArrowDataset& table, const std::string& column, const std::string& what) {
  const Classes classes = found_classes(table, column, what);
  if (classes.count >= 2) return classes;
  throw DataError(fmt::format("{}: column '{}' has one class only: expected two or more.", what, column));
}

Classes agreed_classes(const Classes& data, const Classes& model, const std::string& data_file,
                       const std::string& model_folder) {
  const auto names = model.names.empty() ? placeholder_class_names(model.count) : model.names;
  const auto unknown = names_missing(data.names, names);
  const bool same_kind = !data.names.empty() && unknown.empty();
  if (!same_kind && !are_class_names(names)) return data;
  constexpr const char* kAdvice =
      "Use the model's names in the data, or train a new classifier for the data with --new-classifier.";
  if (!unknown.empty()) {
    throw DataError(
        fmt::format("{} has classes that the model in {} does not name: {}. The data's classes are {}; "
                    "the model's, in its config.json, are {}. {}",
                    data_file, model_folder, listed(unknown), listed(data.names), listed(names), kAdvice));
  }
  if (data.count > std::ssize(names)) {
    throw DataError(
        fmt::format("{} has classes from 0 to {}, but the model in {} has {}, in its config.json: {}. {}",
                    data_file, data.count - 1, model_folder, names.size(), listed(names), kAdvice));
  }
  check_names_differ(names, model_folder);
  return {.names = names, .count = std::ssize(names)};
}

ArrowDataset with_labels(const ArrowDataset& table, const std::string& column, const Classes& classes,
                         const std::string& what) {
  const Column labels = table.column(column);
  const LabelNumbers number_of(table.features()[column], is_text(labels), classes);
  std::vector<std::int64_t> numbers;
  for (std::int64_t row = 0; row < labels.size(); ++row) {
    const auto label = label_at(labels, row, what);
    numbers.push_back(number_of(label));
    if (numbers.back() >= 0 && numbers.back() < classes.count) continue;
    throw DataError(fmt::format("{}, row {}: the label {} is not one of the {} classes of the training{}.",
                                what, row, label.to_json(), classes.count,
                                classes.names.empty() ? "" : ": " + listed(classes.names)));
  }
  std::vector<std::string> replaced = {column};
  if (column != "labels" && table.has_column("labels")) replaced.emplace_back("labels");
  return table.remove_columns(replaced).add_column("labels", lockstep::make_column(numbers));
}

}  // namespace texts
