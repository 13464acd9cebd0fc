#include "data/stream_parts.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/json_text.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

using nlohmann::json;

json to_json(const PartPosition& position) {
  const auto& part = position.part;
  return {{"ranks", part.num_replicas}, {"rank", part.rank},       {"workers", part.num_workers},
          {"worker", part.worker},      {"state", position.state}, {"ended", position.ended}};
}

PartPosition position_from(const json& document) {
  return {.part = {.num_replicas = document.at("ranks").get<int>(),
                   .rank = document.at("rank").get<int>(),
                   .num_workers = document.at("workers").get<int>(),
                   .worker = document.at("worker").get<int>()},
          .state = document.at("state").get<std::string>(),
          .ended = document.at("ended").get<bool>()};
}

struct Entry {
  int ranks = 0;
  int rank = 0;
  PartPositions parts = {};
};

Entry entry_from(const std::string& text) {
  try {
    const auto document = json::parse(text);
    Entry entry{document.at("ranks").get<int>(), document.at("rank").get<int>()};
    for (const auto& part : document.at("parts")) entry.parts.push_back(position_from(part));
    return entry;
  } catch (const json::exception& error) {
    throw UsageError(fmt::format("the saved position of the stream is damaged: {}.", error.what()));
  }
}

void check_complete(const std::vector<Entry>& entries) {
  const auto ranks = std::ssize(entries);
  for (std::size_t rank = 0; rank < entries.size(); ++rank) {
    const auto& entry = entries[rank];
    if (entry.ranks == ranks && entry.rank == static_cast<int>(rank)) continue;
    throw UsageError(
        fmt::format("the saved position of the stream is that of rank {} of {} alone, or not of all ranks. "
                    "Another number "
                    "of ranks needs the positions of all of them, as save_state() writes them.",
                    entry.rank, entry.ranks));
  }
}

/// Ordered by the turn of their next batches.
PartPositions in_order(const std::vector<Entry>& entries) {
  std::size_t most = 0;
  for (const auto& entry : entries) most = std::max(most, entry.parts.size());
  PartPositions all;
  for (std::size_t index = 0; index < most; ++index) {
    for (const auto& entry : entries) {
      if (index < entry.parts.size()) all.push_back(entry.parts[index]);
    }
  }
  return all;
}

}  // namespace

PartPositions first_positions(int num_replicas, int rank, int num_workers) {
  PartPositions parts;
  for (int worker = 0; worker < num_workers; ++worker)
    parts.push_back({.part = {num_replicas, rank, num_workers, worker}});
  return parts;
}

std::string parts_to_text(const PartPositions& parts, int num_replicas, int rank) {
  json list = json::array();
  for (const auto& part : parts) list.push_back(to_json(part));
  return json_text(json{{"ranks", num_replicas}, {"rank", rank}, {"parts", list}});
}

PartPositions deal_parts(std::span<const std::string> entries, int num_replicas, int rank, bool equally) {
  std::vector<Entry> saved;
  for (const auto& text : entries) saved.push_back(entry_from(text));
  const bool is_own = saved.size() == 1 && saved[0].ranks == num_replicas && saved[0].rank == rank;
  if (is_own) return saved[0].parts;
  check_complete(saved);
  const auto all = in_order(saved);
  if (equally && std::ssize(all) % num_replicas != 0) {
    throw UsageError(fmt::format(
        "the saved position of the stream is that of {} parts, one for each worker of {} ranks, which {} "
        "ranks "
        "cannot divide equally: with drop_last all of them would end with the first, and leave rows out. "
        "Continue on a number of ranks that divides {}, without drop_last, or restart the epoch.",
        all.size(), saved.size(), num_replicas, all.size()));
  }
  PartPositions mine;
  for (auto index = static_cast<std::size_t>(rank); index < all.size();
       index += static_cast<std::size_t>(num_replicas))
    mine.push_back(all[index]);
  if (mine.empty() && !all.empty()) {
    // A surplus rank has nothing to read in this epoch, but needs rows to repeat.
    mine.push_back(all[static_cast<std::size_t>(rank) % all.size()]);
    mine.front().ended = true;
    mine.front().state.clear();
  }
  return mine;
}

}  // namespace lockstep
