#pragma once

#include <memory>
#include <string>
#include <utility>

#include "shm/collectives.hpp"
#include "shm/p2p_queue.hpp"
#include "shm/peer_connections.hpp"
#include "shm/step_sync.hpp"

namespace lockstep::shm {

/// The ranks of a process group that share memory with this one: all of them, or those of its host. Ranks may
/// be threads of one process.
///
/// Collectives are called by one thread of a rank at a time, and in the same order on every rank. They throw
/// CommunicationError if a peer died, left or failed (detected within a fraction of a second) or if the calls
/// of the ranks differ, and TimeoutError after the timeout. After an error the group is unusable. Any thread
/// may use the P2P queue at the same time.
class Group {
 public:
  struct Joined {
    std::unique_ptr<Group>
        group;             // The ranks of this host, possibly only this one; null: no ranks share memory.
    HostTopology hosts;    // Which ranks share memory with each other.
    GroupInfo members;     // All ranks; with host names if there are several hosts.
    std::string obstacle;  // Why not all ranks share memory; the same on every rank. Empty: they do.
  };

  /// *Collective*. Throws as connect_peers() does.
  static Joined join(const GroupOptions& options, BootstrapStore& store) {
    PeerConnections connections = connect_peers(options, store);
    Joined joined{nullptr, connections.hosts, options.members, connections.obstacle};
    const bool spans = joined.hosts.count() > 1;
    if (spans) joined.members.hosts = connections.host_names;
    if (connections.peers.empty()) return joined;
    const auto timeout = options.timeout + (spans ? options.timeout_margin : net::Milliseconds(0));
    joined.group =
        std::make_unique<Group>(joined.members.part(joined.hosts.mine()), std::move(connections), timeout);
    return joined;
  }

  Group(const GroupInfo& members, PeerConnections connections, net::Milliseconds timeout)
      : sync_(members, std::move(connections), timeout),
        heap_(std::make_shared<Heap>(sync_.peers()[static_cast<std::size_t>(members.rank)].segment,
                                     sync_.layout().heap)),
        p2p_queue_(sync_, *heap_) {}
  /// Leaves the group: ranks that wait for this one fail with an error that says so.
  ~Group() { sync_.leave(false); }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  /// Ends all operations of this rank, under way and later, with Aborted; see StepSync::abort. Any thread.
  void abort(const std::string& reason) { sync_.abort(reason); }

  StepSync& step_sync() noexcept { return sync_; }
  P2PQueue& p2p_queue() noexcept { return p2p_queue_; }
  /// Memory allocated from it may outlive the group.
  const std::shared_ptr<Heap>& heap() const noexcept { return heap_; }

 private:
  StepSync sync_;
  std::shared_ptr<Heap> heap_;
  P2PQueue p2p_queue_;
};

}  // namespace lockstep::shm
