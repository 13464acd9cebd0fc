#include "datasets/dataset/from_rows.hpp"

#include <fmt/core.h>

#include "datasets/arrow/arrow_conversions.hpp"
#include "datasets/table/convert.hpp"
#include "datasets/table/schema_inference.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/datasets/column_builder.hpp"

namespace lockstep::table {
namespace {

[[noreturn]] void fail(std::int64_t row, const UsageError& error) {
  throw UsageError(fmt::format("row {}: {}", row, error.what()));
}

Features inferred(std::span<const Value> rows, std::int64_t first) {
  SchemaInference finder;
  for (const auto& row : rows) {
    try {
      static_cast<void>(row.fields());
      finder.add(row);
    } catch (const UsageError& error) {
      fail(first + (&row - rows.data()), error);
    }
  }
  return Features::from_fields(finder.type().fields());
}

}  // namespace

ArrowDataset from_rows(std::span<const Value> rows, const std::optional<Features>& features,
                       std::int64_t first) {
  const auto wanted = features ? *features : inferred(rows, first);
  const auto whole = Feature::struct_(wanted);
  ColumnBuilder builder(whole.type());
  for (const auto& row : rows) {
    try {
      builder.append(convert_value(row, whole));
    } catch (const UsageError& error) {
      fail(first + (&row - rows.data()), error);
    }
  }
  const auto fields = arrow_file::fields_of(*builder.finish().flatten());
  std::vector<std::pair<std::string, Column>> columns;
  for (std::size_t index = 0; index < wanted.size(); ++index) {
    columns.emplace_back(wanted.items()[index].first, Column(fields[index]));
  }
  return ArrowDataset::from_columns(std::move(columns), wanted);
}

}  // namespace lockstep::table
