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

/// The labels of a column: one in each row, or a list of them.
class Labels {
 public:
  Labels(const ArrowDataset& table, const std::string& column, bool in_lists, std::string what)
      : column_(table.column(column)),
        feature_(table.features()[column]),
        in_lists_(in_lists),
        what_(std::move(what)) {
    if (!in_lists) return;
    if (!column_.type().is_list() || feature_.children().empty())
      throw lockstep::UsageError(fmt::format("{}: column '{}' has the type {}, expected lists of labels.",
                                             what_, column, column_.type().text()));
    const Feature element = feature_.children().front();
    feature_ = element;
  }

  /// That of one label.
  const Feature& feature() const { return feature_; }
  bool are_texts() const {
    return (in_lists_ ? column_.type().element() : column_.type()).is_text_or_binary();
  }
  std::int64_t rows() const { return column_.size(); }
  /// The file, and the row, for errors.
  std::string place(std::int64_t row) const { return fmt::format("{}, row {}", what_, row); }

  /// As stored in the file: names or numbers.
  std::vector<lockstep::Value> of_row(std::int64_t row) const {
    auto value = column_.value(row);
    if (value.is_null()) fail_missing(row);
    if (!in_lists_) return {std::move(value)};
    for (const auto& label : value.list())
      if (label.is_null()) fail_missing(row);
    return value.list();
  }

  void for_each(const auto& take) const {
    for (std::int64_t row = 0; row < rows(); ++row)
      for (const auto& label : of_row(row)) take(row, label);
  }

 private:
  [[noreturn]] void fail_missing(std::int64_t row) const {
    throw DataError(fmt::format("{}, has {}no label.", place(row), in_lists_ ? "a word with " : ""));
  }

  Column column_;
  Feature feature_;
  bool in_lists_;
  std::string what_;
};

Classes from_names(const Labels& labels) {
  std::set<std::string> names;
  labels.for_each([&](std::int64_t, const lockstep::Value& label) { names.insert(label.text()); });
  return {.names = {names.begin(), names.end()}, .count = static_cast<std::int64_t>(names.size())};
}

/// The number of a class without a name, where false and true are 0 and 1; none for any other label.
std::optional<std::int64_t> number_of(const lockstep::Value& label) {
  if (const auto* flag = std::get_if<bool>(&label.variant())) return *flag ? 1 : 0;
  if (!label.is_number() || std::trunc(label.number()) != label.number()) return std::nullopt;
  return label.integer();
}

Classes from_numbers(const Labels& labels) {
  std::int64_t largest = -1;
  labels.for_each([&](std::int64_t row, const lockstep::Value& label) {
    const auto number = number_of(label);
    if (!number || *number < 0) {
      throw DataError(fmt::format("{}, has the label {}: expected names, or numbers from 0 on.",
                                  labels.place(row), label.to_json()));
    }
    largest = std::max(largest, *number);
  });
  return {.names = {}, .count = largest + 1};
}

/// Maps the labels of one column to class numbers.
class LabelNumbers {
 public:
  LabelNumbers(const Labels& labels, const Classes& classes)
      : text_(labels.are_texts()), none_(classes.count), numbers_(by_name(classes)) {
    if (labels.feature().kind() != Feature::Kind::class_label || classes.names.empty()) return;
    for (const auto& name : labels.feature().names()) declared_.push_back(number_of(name));
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

Classes found_classes(const Labels& labels) {
  const Feature& feature = labels.feature();
  if (feature.kind() == Feature::Kind::class_label) {
    return {.names = feature.names(), .count = static_cast<std::int64_t>(feature.names().size())};
  }
  return labels.are_texts() ? from_names(labels) : from_numbers(labels);
}

Classes several_classes(const Labels& labels, const std::string& column, const std::string& what) {
  const Classes classes = found_classes(labels);
  if (classes.count >= 2) return classes;
  throw DataError(fmt::format("{}: column '{}' has one class only: expected two or more.", what, column));
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

/// The numbers of a row's labels.
std::vector<std::int64_t> numbers_in_row(const Labels& labels, std::int64_t row,
                                         const LabelNumbers& number_of, const Classes& classes) {
  std::vector<std::int64_t> numbers;
  for (const auto& label : labels.of_row(row)) {
    numbers.push_back(number_of(label));
    if (numbers.back() >= 0 && numbers.back() < classes.count) continue;
    throw DataError(fmt::format("{}: the label {} is not one of the {} classes of the training{}.",
                                labels.place(row), label.to_json(), classes.count,
                                classes.names.empty() ? "" : ": " + listed(classes.names)));
  }
  return numbers;
}

ArrowDataset with_column_of_labels(const ArrowDataset& table, const std::string& column,
                                   lockstep::Column labels) {
  std::vector<std::string> replaced = {column};
  if (column != "labels" && table.has_column("labels")) replaced.emplace_back("labels");
  return table.remove_columns(replaced).add_column("labels", std::move(labels));
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
  return several_classes(Labels(table, column, /*in_lists=*/false, what), column, what);
}

Classes tag_classes_of(const ArrowDataset& table, const std::string& column, const std::string& what) {
  return several_classes(Labels(table, column, /*in_lists=*/true, what), column, what);
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
  const Labels labels(table, column, /*in_lists=*/false, what);
  const LabelNumbers number_of(labels, classes);
  std::vector<std::int64_t> numbers;
  for (std::int64_t row = 0; row < labels.rows(); ++row)
    numbers.push_back(numbers_in_row(labels, row, number_of, classes).front());
  return with_column_of_labels(table, column, lockstep::make_column(numbers));
}

ArrowDataset with_tags(const ArrowDataset& table, const std::string& column, const Classes& classes,
                       const std::string& what) {
  const Labels labels(table, column, /*in_lists=*/true, what);
  const LabelNumbers number_of(labels, classes);
  std::vector<std::vector<std::int64_t>> numbers;
  for (std::int64_t row = 0; row < labels.rows(); ++row)
    numbers.push_back(numbers_in_row(labels, row, number_of, classes));
  return with_column_of_labels(table, column, lockstep::make_column(numbers));
}

}  // namespace texts
