#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

namespace lockstep {

/// This rank's number in its group, and the names of the members in messages.
struct GroupInfo {
  int rank = 0;
  std::vector<int> names;               // The members' ranks in the world.
  std::string who;                      // Prefix of messages: "rank 1 of 4".
  std::vector<std::string> hosts = {};  // The members' host names; empty: one host.

  int size() const { return static_cast<int>(names.size()); }
  int name(int member) const { return names.at(static_cast<std::size_t>(member)); }
  /// "rank 1", or "rank 1 on node0".
  std::string called(int member) const {
    const std::string text = fmt::format("rank {}", name(member));
    return hosts.empty() ? text : text + " on " + hosts.at(static_cast<std::size_t>(member));
  }

  /// All ranks, numbered from 0.
  static GroupInfo whole(int rank, int size) {
    GroupInfo result{rank, std::vector<int>(static_cast<std::size_t>(size)),
                     fmt::format("rank {} of {}", rank, size)};
    std::iota(result.names.begin(), result.names.end(), 0);
    return result;
  }

  /// A subgroup that includes this rank.
  GroupInfo part(const std::vector<int>& members) const {
    GroupInfo result{0, {}, who, {}};
    for (const int member : members) {
      if (member == rank) result.rank = result.size();
      result.names.push_back(name(member));
      if (!hosts.empty()) result.hosts.push_back(hosts.at(static_cast<std::size_t>(member)));
    }
    return result;
  }
};

}  // namespace lockstep
