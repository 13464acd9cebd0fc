#include "datasets/table/convert.hpp"
#include "datasets/table/schema_inference.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/datasets/column_builder.hpp"
#include "state.hpp"

namespace lockstep {
namespace {

[[noreturn]] void fail(std::size_t row, const UsageError& error) {
  throw UsageError("row " + std::to_string(row) + ": " + error.what());
}

Features inferred(std::span<const Value> rows) {
  table::SchemaInference finder;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    try {
      static_cast<void>(rows[row].fields());
      finder.add(rows[row]);
    } catch (const UsageError& error) {
      fail(row, error);
    }
  }
  return Features::from_fields(finder.type().fields());
}

}  // namespace

ArrowDataset ArrowDataset::from_rows(std::span<const Value> rows, const std::optional<Features>& features) {
  const auto wanted = features ? *features : inferred(rows);
  const auto whole = Feature::struct_(wanted);
  ColumnBuilder builder(whole.type());
  for (std::size_t row = 0; row < rows.size(); ++row) {
    try {
      builder.append(table::converted(rows[row], whole));
    } catch (const UsageError& error) {
      fail(row, error);
    }
  }
  const auto array = builder.finish().flatten();
  std::vector<std::pair<std::string, Column>> columns;
  for (std::size_t place = 0; place < wanted.size(); ++place) {
    columns.emplace_back(wanted.items()[place].first, Column(array->children[place]));
  }
  return from_columns(std::move(columns), wanted);
}

}  // namespace lockstep
