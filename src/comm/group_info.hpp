#pragma once

#include <numeric>
#include <string>
#include <vector>

namespace lockstep::comm {

/// This rank's place in a group, and the names under which people know the ranks: those of the world, in
/// sub-groups too.
struct GroupInfo {
  int rank = 0;
  std::vector<int> names;
  /// The beginning of messages: "rank 1 of 4", or "rank 7 (1 of 2 in the group [5,7])".
  std::string who;

  int size() const { return static_cast<int>(names.size()); }

  static GroupInfo whole(int rank, int size) {
    std::vector<int> names(static_cast<std::size_t>(size));
    std::iota(names.begin(), names.end(), 0);
    return {rank, std::move(names), "rank " + std::to_string(rank) + " of " + std::to_string(size)};
  }

  /// The part of this group that `ranks` makes, seen by its member number `place`.
  GroupInfo part(const std::vector<int>& ranks, int place) const {
    GroupInfo result{place, {}, ""};
    std::string list;
    for (const int member : ranks) {
      result.names.push_back(names.at(static_cast<std::size_t>(member)));
      list += (list.empty() ? "" : ",") + std::to_string(result.names.back());
    }
    result.who = "rank " + std::to_string(result.names.at(static_cast<std::size_t>(place))) + " (" +
                 std::to_string(place) + " of " + std::to_string(ranks.size()) + " in the group [" + list +
                 "])";
    return result;
  }
};

}  // namespace lockstep::comm
