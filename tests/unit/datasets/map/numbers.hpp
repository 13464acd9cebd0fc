#pragma once

#include <gtest/gtest.h>

#include <filesystem>

#include "lockstep/datasets/map.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::testing {

/// Rows 0, 1, ...: a number and its text.
inline ArrowDataset numbers(std::int64_t rows) {
  std::vector<std::int64_t> values;
  std::vector<std::string> texts;
  for (std::int64_t row = 0; row < rows; ++row) {
    values.push_back(row);
    texts.push_back("row " + std::to_string(row));
  }
  return ArrowDataset::from_columns({{"n", make_column(values)}, {"text", make_column(texts)}});
}

inline Columns squares(const MapBatch& batch) {
  std::vector<std::int64_t> result;
  const auto values = batch.column<std::int64_t>("n");
  for (std::int64_t i = 0; i < batch.size(); ++i)
    result.push_back(values[i] * values[i] + batch.first_row % 7);
  return {{"square", make_column(result)}};
}

inline MapOptions options_in(const TemporaryFolder& cache) {
  MapOptions options;
  options.name = "squares";
  options.version = "1";
  options.batch_size = 7;
  options.shard_rows = 20;
  options.cache_folder = cache.path();
  options.progress = false;
  return options;
}

inline std::filesystem::path only_entry(const TemporaryFolder& cache) {
  EXPECT_EQ(cache.files().size(), 1U);
  return cache / cache.files().front();
}

/// Two columns for a batch: `value` from the row `from` on, and nulls and empty lists before.
template <typename T>
Columns values_from(const MapBatch& batch, std::int64_t from, T value) {
  std::vector<Value> rows;
  for (std::int64_t i = 0; i < batch.size(); ++i) {
    const bool is_null = batch.first_row + i < from;
    rows.push_back(
        Value(Value::Fields{{"v", is_null ? Value() : Value(value)},
                            {"list", is_null ? Value(Value::List{}) : Value(Value::List{Value(value)})}}));
  }
  return ArrowDataset::from_rows(rows).columns();
}

}  // namespace lockstep::testing
