#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.hpp"
#include "lockstep/datasets/tokenize.hpp"

namespace lockstep {
namespace {

using List = std::vector<std::int64_t>;

/// All elements of a column's lists one after the other, and where each row ends.
struct Joined {
  List values;
  List ends;
};

template <typename T>
Joined joined_of(const Column& column) {
  Joined joined;
  const auto lists = column.view<std::span<const T>>();
  for (std::int64_t row = 0; row < lists.size(); ++row) {
    const auto list = lists[row];
    joined.values.insert(joined.values.end(), list.begin(), list.end());
    joined.ends.push_back(static_cast<std::int64_t>(joined.values.size()));
  }
  return joined;
}

/// Hugging Face's files hold token ids as int32 and masks as int8.
Joined joined(const Column& column) {
  const auto kind = column.type().is_list() ? column.type().element().kind() : TypeKind::int64;
  if (kind == TypeKind::int8) return joined_of<std::int8_t>(column);
  if (kind == TypeKind::int16) return joined_of<std::int16_t>(column);
  if (kind == TypeKind::int32) return joined_of<std::int32_t>(column);
  return joined_of<std::int64_t>(column);
}

void check_lengths(const std::string& name, const Joined& one, const std::string& first_name,
                   const Joined& first) {
  const auto [mine, other] = std::mismatch(one.ends.begin(), one.ends.end(), first.ends.begin());
  if (mine == one.ends.end()) return;
  throw DataError("group_texts: '" + name + "' and '" + first_name + "' have different lengths in row " +
                  std::to_string(mine - one.ends.begin()) + " of these.");
}

Column blocks_of(const Joined& joined, std::int64_t block_size) {
  ColumnBuilder blocks(DataType::list(DataType(TypeKind::int64)));
  const auto size = static_cast<std::size_t>(block_size);
  const std::span<const std::int64_t> values(joined.values);
  for (std::size_t begin = 0; begin + size <= values.size(); begin += size)
    blocks.append_list(values.subspan(begin, size));
  return blocks.finish();
}

Columns group(const MapBatch& batch, std::int64_t block_size) {
  Columns columns;
  Joined first;
  for (const auto& [name, column] : batch.rows.columns()) {
    Joined all = joined(column);
    if (columns.empty()) first = all;
    check_lengths(name, all, batch.rows.columns().front().first, first);
    columns.emplace_back(name, blocks_of(all, block_size));
  }
  if (!batch.rows.has_column("labels")) {
    const auto ids = std::find_if(columns.begin(), columns.end(),
                                  [](const auto& column) { return column.first == "input_ids"; });
    if (ids != columns.end()) columns.emplace_back("labels", Column(ids->second));
  }
  return columns;
}

}  // namespace

ArrowDataset group_texts(const ArrowDataset& tokens, std::int64_t block_size, MapOptions options) {
  if (block_size < 1) {
    throw UsageError("group_texts: block_size must be 1 or more, but is " + std::to_string(block_size) + ".");
  }
  for (const auto& [name, column] : tokens.columns()) joined(column.slice(0, 0));
  options.name = "group_texts";
  options.version = LOCKSTEP_TEXTS_VERSION;
  options.parameters = nlohmann::json{{"block_size", block_size}}.dump();
  options.input_files.clear();
  options.remove_columns = tokens.column_names();
  const auto blocks = map(
      tokens, [block_size](const MapBatch& batch) { return group(batch, block_size); }, options);
  if (blocks.num_rows() > 0) return blocks;
  throw UsageError("group_texts: no " + std::to_string(options.batch_size) + " of the " +
                   std::to_string(tokens.num_rows()) + " rows fill a block of " + std::to_string(block_size) +
                   " tokens: take more text or a smaller block.");
}

}  // namespace lockstep
