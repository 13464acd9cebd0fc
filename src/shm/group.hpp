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
  Members members;

  /// After this long an operation fails instead of waiting on.
  net::Milliseconds timeout = std::chrono::minutes(30);

  /// So much longer do the ranks of a host wait for each other where the group spans several: what fails
  /// between the hosts is noticed by one of them, who tells the others what it was.
  net::Milliseconds patience = std::chrono::seconds(3);

  /// How long the ranks may take to find each other.
  net::Milliseconds join_timeout = std::chrono::minutes(5);

  /// Of each of a rank's two staging areas. A chunk should fit the second-level cache beside the user's data.
  std::size_t staging_bytes = 1U << 20;

  /// Address space for a rank's heap; memory is taken only as it is used. 0: the host's memory, shared
  /// fairly.
  std::size_t heap_bytes = 0;

  /// Ranks that say the same look whether they share memory. Empty: what the system says of kernel, network
  /// and user; tests play several hosts on one.
  std::string host = {};

  /// How many threads of this rank compute, beside the one that communicates.
  int threads = 1;
};

/// Ranks that share memory: all of those that wanted to join, or this rank's part of them. Ranks may be
/// threads of one process.
///
/// Collectives: one thread of a rank at a time, every rank the same ones in the same order. They throw
/// CommunicationError when a peer died, left or gave up (noticed within a fraction of a second), or when the
/// ranks do not call the same; TimeoutError after the timeout. After an error the group is unusable.
/// The P2P queue may be used by any thread beside them.
class Group {
 public:
  struct Joined {
    std::unique_ptr<Group> group;  // This rank's part, perhaps it alone; null: nobody shares with anybody.
    HostTopology hosts;            // The parts.
    Members members;               // All ranks, with their hosts' names where there are several parts.
    std::string obstacle;          // Why not all share memory; the same on every rank. Empty: they do.
  };

  /// *Collective*. Throws as connect_peers() does.
  static Joined join(const GroupOptions& options, BootstrapStore& store);

  Group(const Members& members, PeerConnections connections, net::Milliseconds timeout);
  /// Leaves the group: a rank that waits for this one fails, with words that say so.
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
