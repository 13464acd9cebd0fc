#pragma once

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

  static GroupInfo whole(int rank, int size);

  /// The part of this group that `ranks` makes, seen by its member number `place`.
  GroupInfo part(const std::vector<int>& ranks, int place) const;
};

}  // namespace lockstep::comm
