#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "core/runtime/process_handle.hpp"
#include "net/deadline.hpp"
#include "shm/bootstrap.hpp"
#include "shm/group_info.hpp"
#include "shm/layout.hpp"
#include "shm/segment.hpp"

namespace lockstep::shm {

struct GroupOptions {
  GroupInfo members;

  /// After this long an operation fails instead of waiting on.
  net::Milliseconds timeout = std::chrono::minutes(30);

  /// Added to the timeout between the ranks of a host where the group spans several hosts: one rank notices
  /// what fails between the hosts, and gets the time to tell the others what it was.
  net::Milliseconds timeout_margin = std::chrono::seconds(3);

  /// How long the ranks may take to connect.
  net::Milliseconds join_timeout = std::chrono::minutes(5);

  /// Of each of a rank's two staging areas. A chunk should fit the second-level cache beside the user's data.
  std::size_t staging_bytes = 1U << 20;

  /// Address space for a rank's heap; memory is taken only as it is used. 0: the host's memory, shared
  /// fairly.
  std::size_t heap_bytes = 0;

  /// Ranks with the same host identity try to share memory. Empty: host_identity(); tests emulate several
  /// hosts on one.
  std::string host = {};

  /// How many threads of this rank compute, beside the communication thread.
  int threads = 1;
};

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
    const auto smallest = std::ranges::min_element(ranks, {}, [](const auto& part) { return part.size(); });
    return smallest == ranks.end() ? 0 : static_cast<int>(smallest->size());
  }
  bool anybody_shares() const {
    return std::ranges::any_of(ranks, [](const auto& part) { return part.size() > 1; });
  }

  /// The host of a rank of the group, and its rank within that host.
  struct HostRank {
    int host;
    int member;
  };
  HostRank host_rank_of(int rank) const {
    for (int host = 0; host < count(); ++host) {
      const auto& part = ranks[static_cast<std::size_t>(host)];
      const auto found = std::ranges::find(part, rank);
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
      return std::ranges::all_of(part,
                                 [&](int other) { return both(rank, static_cast<std::size_t>(other)); });
    };
    auto part = std::ranges::find_if(hosts.ranks, fits);
    if (part == hosts.ranks.end()) part = hosts.ranks.insert(part, std::vector<int>());
    part->push_back(static_cast<int>(rank));
  }
  hosts.own = hosts.host_rank_of(own_rank).host;
  return hosts;
}

struct Peer {
  std::shared_ptr<Segment> segment;
  ProcessHandle process;  // Null: a thread of this process, or a process that this one cannot see.
  int pid = 0;            // For messages.
};

/// The result of connect_peers().
struct PeerConnections {
  std::vector<Peer> peers;              // Those who share memory with this rank, in rank order, itself among
                                        // them. None: nobody shares memory with anybody.
  bool has_cpu_per_rank = false;        // All CPUs that they may use are at least as many as they are.
  int communication_cpu = -1;           // Where this rank's communication thread is to run; -1: anywhere.
  Layout layout = {};                   // Of each one's segment.
  HostTopology hosts = {};              // Who shares memory with whom.
  std::vector<std::string> host_names;  // Of all ranks of the group.
  std::string obstacle = "";            // Why not all share memory. Empty: they do.
};

/// Connects to the other ranks of this host and exchanges segments with them. *Collective*. It is a result
/// and not an error when ranks cannot share memory because they are on several hosts, or in containers or of
/// users that cannot reach each other: all ranks get the same `hosts` and `obstacle`. Throws on every rank
/// when a rank could not create its segment; TimeoutError when a rank has not posted its address before the
/// deadline.
PeerConnections connect_peers(const GroupOptions& options, BootstrapStore& store);

}  // namespace lockstep::shm
