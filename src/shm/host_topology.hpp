#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::shm {

/// Which ranks of a group share memory with which: the group is partitioned into sets of ranks that all share
/// memory with each other. Such a set is called a host here, although a machine may have several (containers,
/// users).
struct HostTopology {
  std::vector<std::vector<int>>
      ranks;    // For each host its ranks, ascending; hosts in the order of their first ranks.
  int own = 0;  // This rank's host.

  int count() const { return static_cast<int>(ranks.size()); }
  const std::vector<int>& mine() const { return ranks[static_cast<std::size_t>(own)]; }

  /// How many ranks the smallest host has.
  int least() const {
    const auto smallest = std::min_element(ranks.begin(), ranks.end(),
                                           [](const auto& a, const auto& b) { return a.size() < b.size(); });
    return smallest == ranks.end() ? 0 : static_cast<int>(smallest->size());
  }
  bool anybody_shares() const {
    return std::any_of(ranks.begin(), ranks.end(), [](const auto& part) { return part.size() > 1; });
  }

  /// The host of a rank of the group, and its rank within that host.
  struct HostRank {
    int host;
    int member;
  };
  HostRank host_rank_of(int rank) const {
    for (int host = 0; host < count(); ++host) {
      const auto& part = ranks[static_cast<std::size_t>(host)];
      const auto found = std::find(part.begin(), part.end(), rank);
      if (found != part.end()) return {host, static_cast<int>(found - part.begin())};
    }
    return {-1, -1};
  }
};

/// Partitions a group. `reached[a][b]`: rank a has connected to rank b; two ranks share memory only if both
/// did. All ranks get the same result, because they compute it from the same reports.
inline HostTopology host_topology_of(const std::vector<std::vector<bool>>& reached, int own_rank) {
  HostTopology hosts;
  const auto both = [&](std::size_t a, std::size_t b) { return reached[a][b] && reached[b][a]; };
  for (std::size_t rank = 0; rank < reached.size(); ++rank) {
    const auto fits = [&](const std::vector<int>& part) {
      return std::all_of(part.begin(), part.end(),
                         [&](int other) { return both(rank, static_cast<std::size_t>(other)); });
    };
    auto part = std::find_if(hosts.ranks.begin(), hosts.ranks.end(), fits);
    if (part == hosts.ranks.end()) part = hosts.ranks.insert(part, std::vector<int>());
    part->push_back(static_cast<int>(rank));
  }
  hosts.own = hosts.host_rank_of(own_rank).host;
  return hosts;
}

}  // namespace lockstep::shm
