#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "core/json_text.hpp"
#include "data/packed_texts.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/datasets/column_builder.hpp"
#include "lockstep/datasets/tokenize.hpp"

namespace lockstep {
namespace {

using List = std::vector<std::int64_t>;

/// The concatenated elements of a column's lists, and where each row ends.
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

/// Hugging Face's files store token ids as int32 and masks as int8.
Joined join_rows(const Column& column) {
  const auto kind = column.type().is_list() ? column.type().element().kind() : TypeKind::int64;
  if (kind == TypeKind::int8) return joined_of<std::int8_t>(column);
  if (kind == TypeKind::int16) return joined_of<std::int16_t>(column);
  if (kind == TypeKind::int32) return joined_of<std::int32_t>(column);
  return joined_of<std::int64_t>(column);
}

std::size_t number_of_tokens(const ArrowDataset& tokens) {
  return join_rows(tokens.columns().front().second).values.size();
}

void check_lengths(const std::string& name, const Joined& one, const std::string& first_name,
                   const Joined& first) {
  const auto [mine, other] = std::mismatch(one.ends.begin(), one.ends.end(), first.ends.begin());
  if (mine == one.ends.end()) return;
  throw DataError(fmt::format("group_texts: '{}' and '{}' have different lengths in row {} of these.", name,
                              first_name, mine - one.ends.begin()));
}

Column blocks_of(const List& numbers, std::int64_t block_size) {
  ColumnBuilder blocks(DataType::list(DataType(TypeKind::int64)));
  const auto size = static_cast<std::size_t>(block_size);
  const std::span<const std::int64_t> values(numbers);
  for (std::size_t begin = 0; begin + size <= values.size(); begin += size)
    blocks.append_list(values.subspan(begin, size));
  return blocks.finish();
}

void keep_apart(Columns& columns, const Joined& tokens, const PackingOptions& options) {
  const auto texts = data::packed_texts(tokens.ends, options.block_size);
  const auto labels = std::find_if(columns.begin(), columns.end(),
                                   [](const auto& column) { return column.first == "labels"; });
  if (labels != columns.end()) {
    auto values = join_rows(labels->second).values;
    for (std::size_t token = 0; token < values.size(); ++token)
      if (texts.position_ids[token] == 0) values[token] = options.separator_id;
    labels->second = blocks_of(values, options.block_size);
  }
  if (options.return_position_ids)
    columns.emplace_back("position_ids", blocks_of(texts.position_ids, options.block_size));
  if (options.return_seq_idx) columns.emplace_back("seq_idx", blocks_of(texts.seq_idx, options.block_size));
}

Columns group(const MapBatch& batch, const PackingOptions& options) {
  Columns columns;
  Joined first;
  for (const auto& [name, column] : batch.rows.columns()) {
    Joined all = join_rows(column);
    if (columns.empty()) first = all;
    check_lengths(name, all, batch.rows.columns().front().first, first);
    columns.emplace_back(name, blocks_of(all.values, options.block_size));
  }
  if (!batch.rows.has_column("labels")) {
    const auto ids = std::find_if(columns.begin(), columns.end(),
                                  [](const auto& column) { return column.first == "input_ids"; });
    if (ids != columns.end()) columns.emplace_back("labels", Column(ids->second));
  }
  if (options.return_position_ids || options.return_seq_idx) keep_apart(columns, first, options);
  return columns;
}

}  // namespace

ArrowDataset group_texts(const ArrowDataset& tokens, const PackingOptions& packing, MapOptions options) {
  if (packing.block_size < 1 || packing.batch_size < 0) {
    throw UsageError(fmt::format(
        "group_texts: block_size must be 1 or more and batch_size 0 or more, but they are {} and {}.",
        packing.block_size, packing.batch_size));
  }
  for (const auto& [name, column] : tokens.columns()) join_rows(column.slice(0, 0));
  options.name = "group_texts";
  options.version = LOCKSTEP_TEXTS_VERSION;
  options.parameters = json_text(nlohmann::json{{"block_size", packing.block_size},
                                                {"return_position_ids", packing.return_position_ids},
                                                {"return_seq_idx", packing.return_seq_idx},
                                                {"separator_id", packing.separator_id}});
  options.batch_size =
      packing.batch_size == 0 ? std::max<std::int64_t>(tokens.num_rows(), 1) : packing.batch_size;
  options.input_files.clear();
  options.remove_columns = tokens.column_names();
  const auto blocks = map(
      tokens, [packing](const MapBatch& batch) { return group(batch, packing); }, options);
  if (blocks.num_rows() > 0) return blocks;
  const bool whole = options.batch_size >= tokens.num_rows();
  throw UsageError(fmt::format(
      "group_texts: {} for a block of {} tokens: take more text or a smaller block.",
      whole ? fmt::format("the {} rows have {} tokens, too few", tokens.num_rows(), number_of_tokens(tokens))
            : fmt::format("{} of the {} rows at a time have too few tokens", options.batch_size,
                          tokens.num_rows()),
      packing.block_size));
}

}  // namespace lockstep
