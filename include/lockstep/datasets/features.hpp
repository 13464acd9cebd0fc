#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/datasets/data_type.hpp"

namespace lockstep {

class Features;

/// The meaning of a column, as in the Python package `datasets`: a value, a class label, a list, a structure.
/// All other kinds of the package (Image, Audio, Translation, Array2D, ...) keep their JSON and the storage
/// type of their file's columns, so that they are preserved. *Local*; a plain value.
class Feature {
 public:
  enum class Kind : std::uint8_t { value, class_label, list, struct_, other };

  /// A null column.
  Feature() = default;
  /// `Value(dtype)`, by the physical type. Lists and structures become Kind::list and Kind::struct_.
  explicit Feature(const DataType& type);
  /// `ClassLabel(names=[...])`: int64 in the table, an index into `names`. Throws UsageError for a name that
  /// occurs twice or is not UTF-8.
  static Feature class_label(std::vector<std::string> names);
  /// `List(element)`; `length` -1 means any length.
  static Feature list(Feature element, std::int32_t length = -1, bool large = false);
  /// A structure: named features in each row.
  static Feature struct_(Features fields);
  /// A preserved kind: the package's JSON for it, and its storage type. Throws UsageError for other text.
  static Feature other(std::string json, DataType storage);

  Kind kind() const noexcept { return kind_; }
  /// The storage type in the table.
  const DataType& type() const noexcept { return type_; }
  /// The class names of a class_label, by number; otherwise empty.
  const std::vector<std::string>& names() const noexcept { return names_; }
  /// The element of a list (one child), or the fields of a structure; their names are in type().fields().
  const std::vector<Feature>& children() const noexcept { return children_; }
  /// The JSON of Kind::other.
  const std::string& json() const noexcept { return json_; }

  /// The number of a class. Throws UsageError, listing the classes, for an unknown name.
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

/// The columns of a data set with their features, in order. *Local*; a plain value.
class Features {
 public:
  Features() = default;
  /// `Features({{"text", Feature(DataType::named("string"))}, ...})`. Throws UsageError for a name that
  /// occurs twice or is not UTF-8.
  explicit Features(std::vector<std::pair<std::string, Feature>> items);

  /// Parses the JSON of dataset_info.json's "features", of datasets 2.x to 5.x. `fields` are the columns of
  /// the file, if available: they determine the storage type of preserved kinds; a column whose type cannot
  /// be of such a kind gets its own. Throws DataError, naming the position, for anything else.
  static Features from_json(std::string_view text, const std::vector<Field>& fields = {});
  /// The features that the package infers for plain columns.
  static Features from_fields(const std::vector<Field>& fields);

  /// JSON as `datasets` 5 writes it.
  std::string to_json() const;
  std::vector<Field> fields() const;

  std::size_t size() const noexcept { return items_.size(); }
  bool empty() const noexcept { return items_.empty(); }
  std::vector<std::string> names() const;
  bool contains(std::string_view name) const noexcept;
  /// Throws UsageError, listing the columns, if there is none of that name.
  const Feature& operator[](std::string_view name) const;
  const std::vector<std::pair<std::string, Feature>>& items() const noexcept { return items_; }

  friend bool operator==(const Features&, const Features&) = default;

 private:
  std::vector<std::pair<std::string, Feature>> items_;
};

}  // namespace lockstep
