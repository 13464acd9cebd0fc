#include "datasets/dataset/concatenate.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <set>

#include "datasets/arrow/arrow_conversions.hpp"
#include "datasets/arrow/mapped_file.hpp"
#include "datasets/dataset/dataset_access.hpp"
#include "datasets/table/convert.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/datasets/column_builder.hpp"

namespace lockstep {
namespace {

using Rows = std::vector<std::int64_t>;

/// The feature that the values of both fit; null if there is none.
std::optional<Feature> unified(const Feature& one, const Feature& other, bool integers_widen) {
  if (one == other || other.type().kind() == TypeKind::null) return one;
  if (one.type().kind() == TypeKind::null) return other;
  // Classes and other meanings must be the same.
  if (!(one == Feature(one.type())) || !(other == Feature(other.type()))) return std::nullopt;
  const auto type = arrow_file::unified(one.type(), other.type(), integers_widen);
  return type ? std::optional(Feature(*type)) : std::nullopt;
}

using Paths = std::span<const std::filesystem::path>;

[[noreturn]] void fail_types(const std::string& column, const Feature& before, const Feature& found,
                             std::size_t number, Paths files) {
  const auto types =
      fmt::format("the column '{}' of the type {} where {} has {}{}", column, found.type().text(),
                  files.empty() ? "one before" : "a file before", before.type().text(),
                  found.type() == before.type() ? " with other classes or another meaning" : "");
  if (!files.empty()) {
    throw UsageError(
        fmt::format("files to load together need the same columns, but '{}' has {}. Name the types in "
                    "LoadOptions::features.",
                    files[number].string(), types));
  }
  throw UsageError(
      fmt::format("data sets to put together need the same columns, but number {} (counted from 0) "
                  "has {}. Use cast, rename_column or remove_columns first.",
                  number, types));
}

/// A column of floating numbers, which integers with nulls in a CSV file are, with the integers' type; null
/// if its numbers are not whole.
std::optional<Column> as_integers(const Column& column, const Feature& integers, std::string_view name) try {
  return table::converted_column(column, integers, name);
} catch (const UsageError&) {
  return std::nullopt;
}

/// Columns of whole floating numbers as integers, by the data set's number and the name.
using WholeNumbers = std::map<std::pair<std::size_t, std::string>, Column>;

bool has_only_nulls(const ArrowDataset& dataset, const std::string& name) {
  if (!dataset.has_column(name)) return true;
  const auto column = dataset.column(name);
  return column.null_count() == column.size();
}

/// The feature of a column in these files, where it is `before` without the last one; null if there is none.
/// A column of a CSV file with only nulls, which is of floating numbers, takes the type of the others.
std::optional<Feature> unified_in_files(std::span<const ArrowDataset> files, const std::string& name,
                                        const Feature& before) {
  const auto& last = files.back().features()[name];
  if (const auto both = unified(before, last, true)) return both;
  if (has_only_nulls(files.back(), name)) return before;
  const auto earlier = files.first(files.size() - 1);
  const bool nulls_before = std::all_of(earlier.begin(), earlier.end(),
                                        [&](const auto& file) { return has_only_nulls(file, name); });
  return nulls_before ? std::optional(last) : std::nullopt;
}

/// The columns of all data sets. Those of a data set without rows do not count beside others.
Features all_features(std::span<const ArrowDataset> datasets, Paths files, WholeNumbers& whole) {
  std::vector<std::pair<std::string, Feature>> items;
  std::map<std::string, std::size_t, std::less<>> indices;
  for (std::size_t number = 0; number < datasets.size(); ++number) {
    const auto& features = datasets[number].features();
    if (datasets[number].num_rows() == 0 || features.items() == items) continue;
    for (const auto& [name, feature] : features.items()) {
      const auto [entry, is_new] = indices.try_emplace(name, items.size());
      if (is_new) {
        items.emplace_back(name, feature);
        continue;
      }
      auto& before = items[entry->second].second;
      if (!files.empty() && before.type().is_integer() && feature.type().is_floating()) {
        if (auto integers = as_integers(datasets[number].column(name), before, name)) {
          whole.emplace(std::pair(number, name), *std::move(integers));
          continue;
        }
      }
      const auto both = files.empty() ? unified(before, feature, false)
                                      : unified_in_files(datasets.first(number + 1), name, before);
      if (!both) fail_types(name, before, feature, number, files);
      before = *both;
    }
  }
  return items.empty() ? datasets.front().features() : Features(std::move(items));
}

Column nulls(std::int64_t rows, const DataType& type, std::string_view name) {
  ColumnBuilder builder{DataType()};
  for (std::int64_t row = 0; row < rows; ++row) builder.append_null();
  return table::converted_column(builder.finish(), Feature(type), name);
}

ArrowDataset with_features(const ArrowDataset& dataset, const Features& features, std::size_t number,
                           const WholeNumbers& whole) {
  auto fresh = DatasetAccess::copy(dataset);
  fresh->features = features;
  fresh->columns.clear();
  const auto column = [&](const std::string& name, const Feature& feature) {
    if (dataset.has_column(name) && dataset.features()[name] == feature) return dataset.column(name);
    if (has_only_nulls(dataset, name)) return nulls(dataset.num_rows(), feature.type(), name);
    const auto integers = whole.find({number, name});
    if (integers != whole.end() && integers->second.type() == feature.type()) return integers->second;
    return table::converted_column(dataset.column(name), feature, name);
  };
  for (const auto& [name, feature] : features.items())
    fresh->columns.emplace_back(name, column(name, feature));
  return DatasetAccess::make(std::move(fresh));
}

/// The data sets with the columns of all of them.
std::vector<ArrowDataset> with_same_columns(std::span<const ArrowDataset> datasets, Paths files) {
  WholeNumbers whole;
  const auto features = all_features(datasets, files, whole);
  std::vector<ArrowDataset> same;
  for (std::size_t number = 0; number < datasets.size(); ++number) {
    const auto& dataset = datasets[number];
    try {
      same.push_back(dataset.features() == features ? dataset
                                                    : with_features(dataset, features, number, whole));
    } catch (const UsageError& error) {
      if (files.empty()) throw;
      throw UsageError(fmt::format("'{}': {}", files[number].string(), error.what()));
    }
  }
  return same;
}

/// The complete data of all columns, concatenated, regardless of their row maps.
std::shared_ptr<const ColumnData> join_columns(const std::vector<Column>& columns) {
  std::vector<Column> whole;
  for (const auto& column : columns) whole.emplace_back(column.data());
  return Column::concatenate(whole).data();
}

RowMap joined_rows(const std::vector<Column>& columns) {
  Rows rows;
  std::int64_t offset = 0;
  for (const auto& column : columns) {
    for (std::int64_t row = 0; row < column.size(); ++row) rows.push_back(offset + column.rows()[row]);
    offset += column.data()->size();
  }
  return RowMap(std::make_shared<const Rows>(std::move(rows)));
}

/// Concatenates the row maps of columns; columns that share theirs share the result.
class RowJoiner {
 public:
  const RowMap& join(const std::vector<Column>& columns) {
    const auto same = [](const Column& a, const Column& b) {
      return a.rows().is_same(b.rows()) && a.data()->size() == b.data()->size();
    };
    if (!std::equal(columns.begin(), columns.end(), last_.begin(), last_.end(), same)) {
      rows_ = joined_rows(columns);
      last_ = columns;
    }
    return rows_;
  }

 private:
  std::vector<Column> last_;
  RowMap rows_;
};

Column joined_column(const std::vector<Column>& columns, RowJoiner& joiner) {
  if (std::all_of(columns.begin(), columns.end(), arrow_file::is_whole)) return Column::concatenate(columns);
  return {join_columns(columns), joiner.join(columns)};
}

/// The sources of all, each once, in the order in which they come first.
std::vector<std::filesystem::path> all_sources(std::span<const ArrowDataset> datasets) {
  std::vector<std::filesystem::path> sources;
  std::set<std::filesystem::path> seen;
  for (const auto& dataset : datasets) {
    for (const auto& path : DatasetAccess::state(dataset).sources) {
      if (seen.insert(path).second) sources.push_back(path);
    }
  }
  return sources;
}

}  // namespace

ArrowDataset concatenated(std::span<const ArrowDataset> given, Paths files) {
  if (given.empty()) throw UsageError("there is no data set to concatenate.");
  const auto datasets = with_same_columns(given, files);
  auto fresh = DatasetAccess::copy(datasets.front());
  RowJoiner joiner;
  for (auto& [name, column] : fresh->columns) {
    std::vector<Column> columns;
    for (const auto& dataset : datasets) columns.push_back(dataset.column(name));
    column = joined_column(columns, joiner);
  }
  fresh->rows = 0;
  for (const auto& dataset : datasets) fresh->rows += dataset.num_rows();
  fresh->sources = all_sources(datasets);
  return DatasetAccess::make(std::move(fresh));
}

}  // namespace lockstep
