#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/datasets/data_type.hpp"

namespace lockstep {

class Features;

/// What a column means, in the words of the Python package `datasets`: a plain value, a class, a list, a
/// structure. Anything else of the package's (Image, Audio, Translation, Array2D, ...) keeps its JSON and is
/// stored as its file's columns say, so that it passes through unharmed. *Local*; a plain value.
class Feature {
 public:
  enum class Kind : std::uint8_t { value, class_label, list, struct_, other };

  /// A null column.
  Feature() = default;
  /// `Value(dtype)`, by the physical type. Lists and structures become Kind::list and Kind::struct_.
  explicit Feature(const DataType& type);
  /// `ClassLabel(names=[...])`: int64 in the table, the number being the place in `names`. Throws UsageError
  /// for a name given twice.
  static Feature class_label(std::vector<std::string> names);
  /// `List(element)`; `length` -1 is any.
  static Feature list(Feature element, std::int32_t length = -1, bool large = false);
  /// Named features in each row.
  static Feature struct_(Features fields);
  /// A kind that is passed through: the package's JSON for it, and how it is stored.
  static Feature other(std::string json, DataType storage);

  Kind kind() const noexcept { return kind_; }
  /// How it lies in the table.
  const DataType& type() const noexcept { return type_; }
  /// The classes of a class_label, by number; empty for others.
  const std::vector<std::string>& names() const noexcept { return names_; }
  /// A list's element (one child), or a structure's fields; their names are in type().fields().
  const std::vector<Feature>& children() const noexcept { return children_; }
  /// The JSON of Kind::other.
  const std::string& json() const noexcept { return json_; }

  /// The number of a class. Throws UsageError, naming the classes, for a name that is none of them.
  std::int64_t class_number(std::string_view name) const;
  /// The name of a class. Throws UsageError for a number out of range.
  const std::string& class_name(std::int64_t number) const;

  friend bool operator==(const Feature&, const Feature&) = default;

 private:
  Kind kind_ = Kind::value;
  DataType type_;
  std::vector<std::string> names_;
  std::vector<Feature> children_;
  std::string json_;
};

/// The columns of a data set with their meanings, in order. *Local*; a plain value.
class Features {
 public:
  Features() = default;
  /// `Features({{"text", Feature(DataType::named("string"))}, ...})`. Throws UsageError for a name given
  /// twice.
  explicit Features(std::vector<std::pair<std::string, Feature>> items);

  /// From the JSON of dataset_info.json's "features", of datasets 2.x to 5.x. `fields` are the columns of
  /// the file, where one is at hand: the kinds that are passed through are stored as it says. Throws
  /// DataError, naming the place, for anything else.
  static Features from_json(std::string_view text, const std::vector<Field>& fields = {});
  /// What the package would make of plain columns.
  static Features from_fields(const std::vector<Field>& fields);

  /// As `datasets` 5 writes it.
  std::string to_json() const;
  std::vector<Field> fields() const;

  std::size_t size() const noexcept { return items_.size(); }
  bool empty() const noexcept { return items_.empty(); }
  std::vector<std::string> names() const;
  bool contains(std::string_view name) const noexcept;
  /// Throws UsageError, naming the columns that there are, when there is none of that name.
  const Feature& operator[](std::string_view name) const;
  const std::vector<std::pair<std::string, Feature>>& items() const noexcept { return items_; }

  friend bool operator==(const Features&, const Features&) = default;

 private:
  std::vector<std::pair<std::string, Feature>> items_;
};

}  // namespace lockstep
