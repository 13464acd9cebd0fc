#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>

#include "core/json_text.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/datasets/chats.hpp"

namespace lockstep {
namespace {

using Tokens = std::span<const std::int64_t>;

/// The tokens of a text, or a part of them, with their labels.
struct Fragment {
  Tokens ids;
  Tokens labels;
};

std::vector<Fragment> fragments_of(const MapBatch& batch, std::size_t longest, bool splits) {
  const auto ids = batch.column<Tokens>("input_ids");
  const auto labels = batch.column<Tokens>("labels");
  std::vector<Fragment> fragments;
  for (std::int64_t row = 0; row < batch.size(); ++row) {
    if (ids[row].size() != labels[row].size())
      throw DataError("pack_chats: 'input_ids' and 'labels' have different lengths.");
    for (std::size_t begin = 0; begin < ids[row].size(); begin += longest) {
      const auto length = std::min(longest, ids[row].size() - begin);
      fragments.push_back({ids[row].subspan(begin, length), labels[row].subspan(begin, length)});
      if (!splits) break;
    }
  }
  return fragments;
}

/// Best fit decreasing. The longest fragment comes first; each goes into the row whose free space is the
/// least that it fits into, of several the one that has had this space for the longest time, otherwise into a
/// new row. Rows are in the order in which they were begun.
std::vector<std::vector<std::size_t>> best_fits(const std::vector<Fragment>& fragments, std::size_t longest) {
  std::vector<std::size_t> order(fragments.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return fragments[a].ids.size() > fragments[b].ids.size(); });
  std::vector<std::vector<std::size_t>> rows;
  std::map<std::size_t, std::deque<std::size_t>> with_space;
  for (const auto fragment : order) {
    const auto length = fragments[fragment].ids.size();
    auto space = longest;
    auto row = rows.size();
    if (const auto fit = with_space.lower_bound(length); fit != with_space.end()) {
      space = fit->first;
      row = fit->second.front();
      fit->second.pop_front();
      if (fit->second.empty()) with_space.erase(fit);
    } else {
      rows.emplace_back();
    }
    rows[row].push_back(fragment);
    if (space > length) with_space[space - length].push_back(row);
  }
  return rows;
}

/// Nothing predicts the first token of a row.
bool is_trained(Tokens row) {
  const Tokens labels = row.subspan(1);
  return std::any_of(labels.begin(), labels.end(), [](auto label) { return label != kNotTrained; });
}

Columns packed_columns(const MapBatch& batch, std::size_t longest, bool splits) {
  const auto fragments = fragments_of(batch, longest, splits);
  ColumnBuilder ids(DataType::list(DataType(TypeKind::int64)));
  ColumnBuilder labels(DataType::list(DataType(TypeKind::int64)));
  ColumnBuilder positions(DataType::list(DataType(TypeKind::int64)));
  for (const auto& row : best_fits(fragments, longest)) {
    std::vector<std::int64_t> all_ids, all_labels, all_positions;
    for (const auto number : row) {
      const auto& [own_ids, own_labels] = fragments[number];
      all_ids.insert(all_ids.end(), own_ids.begin(), own_ids.end());
      // No token before it is of the same text.
      all_labels.push_back(kNotTrained);
      all_labels.insert(all_labels.end(), own_labels.begin() + 1, own_labels.end());
      for (std::size_t i = 0; i < own_ids.size(); ++i) all_positions.push_back(static_cast<std::int64_t>(i));
    }
    if (!is_trained(all_labels)) continue;
    ids.append(all_ids);
    labels.append(all_labels);
    positions.append(all_positions);
  }
  return {{"input_ids", ids.finish()}, {"labels", labels.finish()}, {"position_ids", positions.finish()}};
}

Columns wrapped_columns(const MapBatch& batch, std::size_t longest) {
  std::vector<std::int64_t> all_ids, all_labels;
  for (const auto& [own_ids, own_labels] : fragments_of(batch, std::size_t{1} << 62U, false)) {
    all_ids.insert(all_ids.end(), own_ids.begin(), own_ids.end());
    all_labels.insert(all_labels.end(), own_labels.begin(), own_labels.end());
  }
  ColumnBuilder ids(DataType::list(DataType(TypeKind::int64)));
  ColumnBuilder labels(DataType::list(DataType(TypeKind::int64)));
  for (std::size_t begin = 0; begin < all_ids.size(); begin += longest) {
    const auto length = std::min(longest, all_ids.size() - begin);
    const Tokens row = Tokens(all_labels).subspan(begin, length);
    if (!is_trained(row)) continue;
    ids.append_list(Tokens(all_ids).subspan(begin, length));
    labels.append_list(row);
  }
  return {{"input_ids", ids.finish()}, {"labels", labels.finish()}};
}

}  // namespace

ArrowDataset pack_chats(const ArrowDataset& tokens, std::int64_t max_length, ChatPacking packing,
                        MapOptions options) {
  if (max_length < 1)
    throw UsageError(fmt::format("pack_chats: max_length must be 1 or more, but is {}.", max_length));
  options.name = "pack_chats";
  options.version = LOCKSTEP_TEXTS_VERSION;
  options.parameters =
      json_text(nlohmann::json{{"max_length", max_length}, {"packing", static_cast<int>(packing)}});
  options.batch_size = 1000;
  options.input_files.clear();
  options.remove_columns = tokens.column_names();
  const auto longest = static_cast<std::size_t>(max_length);
  auto packed = map(
      tokens,
      [longest, packing](const MapBatch& batch) {
        if (packing == ChatPacking::wrapped) return wrapped_columns(batch, longest);
        return packed_columns(batch, longest, packing == ChatPacking::bfd_split);
      },
      options);
  if (packed.num_rows() > 0) return packed;
  throw UsageError(fmt::format(
      "pack_chats: none of the {} rows has a token to train on within its first {} tokens: raise max_length.",
      tokens.num_rows(), max_length));
}

}  // namespace lockstep
