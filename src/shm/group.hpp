#pragma once

#include <memory>
#include <string>

#include "shm/collectives.hpp"
#include "shm/heap.hpp"
#include "shm/p2p_queue.hpp"
#include "shm/peer_connections.hpp"
#include "shm/step_sync.hpp"

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

/// The ranks of a process group that share memory with this one: all of them, or those of its host. Ranks may
/// be threads of one process.
///
/// Collectives are called by one thread of a rank at a time, the same ones in the same order on every rank.
/// They throw CommunicationError when a peer died, left or failed (noticed within a fraction of a second) or
/// when the calls of the ranks differ, and TimeoutError after the timeout. After an error the group is
/// unusable. The P2P queue may be used by any thread beside them.
class Group {
 public:
  struct Joined {
    std::unique_ptr<Group>
        group;             // The ranks of this host, perhaps this one alone; null: no ranks share memory.
    HostTopology hosts;    // Which ranks share memory with which.
    GroupInfo members;     // All ranks, with host names where there are several hosts.
    std::string obstacle;  // Why not all ranks share memory; the same on every rank. Empty: they do.
  };

  /// *Collective*. Throws as connect_peers() does.
  static Joined join(const GroupOptions& options, BootstrapStore& store);

  Group(const GroupInfo& members, PeerConnections connections, net::Milliseconds timeout);
  /// Leaves the group: a rank that waits for this one fails with an error that says so.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  StepSync& step_sync() noexcept { return sync_; }
  P2PQueue& p2p_queue() noexcept { return p2p_queue_; }
  /// Memory allocated there may outlive the group.
  const std::shared_ptr<Heap>& heap() const noexcept { return heap_; }

 private:
  StepSync sync_;
  std::shared_ptr<Heap> heap_;
  P2PQueue p2p_queue_;
};

}  // namespace lockstep::shm
