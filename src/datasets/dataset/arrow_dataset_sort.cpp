#include <algorithm>
#include <cmath>
#include <compare>
#include <memory>
#include <numeric>

#include "datasets/dataset/dataset_access.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

using Compare = std::function<int(std::int64_t, std::int64_t)>;

/// The values of a sort column, and which of them are null or NaN.
template <typename T>
struct Keys {
  std::vector<T> values;
  /// 0 for a value, 1 for NaN, 2 for null: this order with nulls at the end, reversed with nulls at the
  /// start.
  std::vector<std::uint8_t> ranks;
};

template <typename T>
bool is_nan(const T& value) {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(value);
  return false;
}

template <typename T, typename Read>
Keys<T> keys_of(std::int64_t size, const Column& column, const Read& read) {
  Keys<T> keys;
  for (std::int64_t row = 0; row < size; ++row) {
    const bool null = column.is_null(row);
    keys.values.push_back(null ? T() : read(row));
    keys.ranks.push_back(null ? 2 : is_nan(keys.values.back()) ? 1 : 0);
  }
  return keys;
}

template <typename T>
Compare comparer(Keys<T> keys, bool descending, NullPlacement nulls) {
  auto shared = std::make_shared<const Keys<T>>(std::move(keys));
  return [shared, descending, nulls](std::int64_t a, std::int64_t b) {
    const auto first = static_cast<std::size_t>(a);
    const auto second = static_cast<std::size_t>(b);
    const int ranks = int{shared->ranks[first]} - int{shared->ranks[second]};
    if (ranks != 0) return nulls == NullPlacement::at_end ? ranks : -ranks;
    if (shared->ranks[first] != 0) return 0;
    const auto& x = shared->values[first];
    const auto& y = shared->values[second];
    const int order = x < y ? -1 : y < x ? 1 : 0;
    return descending ? -order : order;
  };
}

template <typename T>
Compare typed(const Column& column, const SortKey& key, NullPlacement nulls) {
  const auto view = column.view<T>();
  return comparer(keys_of<T>(column.size(), column, [&](std::int64_t row) { return view[row]; }),
                  key.descending, nulls);
}

Compare compare_by(const Column& column, const SortKey& key, NullPlacement nulls) {
  const auto& type = column.type();
  if (type.is_text_or_binary() || type.kind() == TypeKind::fixed_size_binary)
    return typed<std::string_view>(column, key, nulls);
  if (type.kind() == TypeKind::boolean) return typed<bool>(column, key, nulls);
  if (type.kind() == TypeKind::uint64) return typed<std::uint64_t>(column, key, nulls);
  if (type.is_list() || type.kind() == TypeKind::struct_ || type.is_decimal()) {
    throw UsageError("the column '" + key.column + "' of the type " + type.text() + " cannot be sorted by.");
  }
  if (type.is_floating()) {
    const auto read = [&](std::int64_t row) { return column.value(row).number(); };
    return comparer(keys_of<double>(column.size(), column, read), key.descending, nulls);
  }
  const auto read = [&](std::int64_t row) { return column.value(row).integer(); };
  return comparer(keys_of<std::int64_t>(column.size(), column, read), key.descending, nulls);
}

}  // namespace

ArrowDataset ArrowDataset::sort(std::span<const SortKey> keys, NullPlacement nulls) const {
  if (keys.empty()) throw UsageError("sort needs a column to sort by.");
  std::vector<Compare> compares;
  for (const auto& key : keys) compares.push_back(compare_by(column(key.column), key, nulls));
  std::vector<std::int64_t> rows(static_cast<std::size_t>(num_rows()));
  std::iota(rows.begin(), rows.end(), 0);
  std::stable_sort(rows.begin(), rows.end(), [&](std::int64_t a, std::int64_t b) {
    for (const auto& compare : compares) {
      if (const int order = compare(a, b); order != 0) return order < 0;
    }
    return false;
  });
  return select(rows);
}

ArrowDataset ArrowDataset::sort(std::string column, bool descending, NullPlacement nulls) const {
  const SortKey key{std::move(column), descending};
  return sort(std::span<const SortKey>(&key, 1), nulls);
}

}  // namespace lockstep
