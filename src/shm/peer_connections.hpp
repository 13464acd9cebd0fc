#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "core/runtime/process_handle.hpp"
#include "net/deadline.hpp"
#include "net/file_descriptor.hpp"
#include "shm/bootstrap.hpp"
#include "coordination/group_info.hpp"
#include "shm/layout.hpp"
#include "shm/segment.hpp"

namespace lockstep::shm {

struct GroupOptions {
  GroupInfo members;

  /// An operation that takes longer than this fails.
  net::Milliseconds timeout = std::chrono::minutes(30);

  /// Added to the timeout between the ranks of a host if the group is on several hosts: the rank that detects
  /// a failure between hosts gets this time to report it to the others.
  net::Milliseconds timeout_margin = std::chrono::seconds(3);

  /// Time limit for the ranks to connect.
  net::Milliseconds join_timeout = std::chrono::minutes(5);

  /// Size of each of a rank's two staging areas. A chunk should fit the L2 cache beside the user's data.
  std::size_t staging_bytes = 1U << 20;

  /// Address space of a rank's heap; memory is allocated only when used. 0: an equal share of the host's
  /// memory.
  std::size_t heap_bytes = 0;

  /// Ranks with the same host identity try to share memory. Empty: host_identity(). Tests use it to emulate
  /// several hosts on one.
  std::string host = {};

  /// Number of this rank's computing threads, without the communication thread.
  int threads = 1;
};

/// Which ranks of a group share memory: a partition of the group into sets in which every pair shares memory.
/// Such a set is called a host here, although a machine may have several (containers, users).
struct HostTopology {
  std::vector<std::vector<int>> ranks;  // Per host its ranks, ascending; hosts ordered by their first rank.
  int own = 0;                          // This rank's host.

  int count() const { return static_cast<int>(ranks.size()); }
  const std::vector<int>& mine() const { return ranks[static_cast<std::size_t>(own)]; }

  /// The size of the smallest host.
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

/// Partitions a group. `reached[a][b]`: rank a has connected to rank b. Two ranks share memory only if both
/// did. All ranks compute the same result from the same reports.
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
  ProcessHandle process;     // Null: this process, or one in another pid namespace.
  net::FileDescriptor link;  // The connection to a process in another pid namespace, which ends with it.
  int pid = 0;               // For messages.

  /// Whether its process has ended.
  bool has_ended() const noexcept;
};

/// The result of connect_peers().
struct PeerConnections {
  std::vector<Peer> peers;              // The ranks that share memory with this one, in rank order, including
                                        // itself. Empty: no ranks share memory.
  bool has_cpu_per_rank = false;        // They may use at least as many CPUs as there are ranks.
  int communication_cpu = -1;           // CPU of this rank's communication thread; -1: any.
  Layout layout = {};                   // Of every segment.
  HostTopology hosts = {};              // Which ranks share memory.
  std::vector<std::string> host_names;  // Of all ranks of the group.
  std::string obstacle = "";            // Why not all share memory. Empty: they do.
};

/// Connects to the other ranks of this host and exchanges segments with them. *Collective*. If ranks cannot
/// share memory because they are on several hosts, or in containers or of users that cannot reach each other,
/// this is not an error: all ranks get the same `hosts` and `obstacle`. Throws on every rank if a rank could
/// not create its segment; TimeoutError if a rank has not posted its address before the deadline.
PeerConnections connect_peers(const GroupOptions& options, BootstrapStore& store);

}  // namespace lockstep::shm
