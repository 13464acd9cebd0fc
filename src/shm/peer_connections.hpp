#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/runtime/process_handle.hpp"
#include "net/deadline.hpp"
#include "shm/host_topology.hpp"
#include "shm/layout.hpp"
#include "shm/segment.hpp"

namespace lockstep::shm {

/// Where ranks that cannot talk to each other yet leave notes: a namespace of the job's store that nobody
/// else uses. Implemented outside, so that this folder needs no store.
class BootstrapStore {
 public:
  virtual ~BootstrapStore() = default;
  virtual void post(const std::string& key, const std::string& value) = 0;
  /// Waits for the note; throws TimeoutError when the deadline comes first.
  virtual std::string read(const std::string& key, net::Deadline deadline) = 0;
};

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

struct JoinOptions {
  int rank;
  int size;
  std::string host;  // See GroupOptions.
  int threads;       // See GroupOptions.
  net::Deadline deadline;
  /// What a segment looks like when so many ranks may share memory.
  std::function<Layout(int ranks)> layout;
};

/// Connects to the other ranks of this host and exchanges segments with them. *Collective*. It is a result
/// and not an error when ranks cannot share memory because they are on several hosts, or in containers or of
/// users that cannot reach each other: all ranks get the same `hosts` and `obstacle`. Throws on every rank
/// when a rank could not create its segment; TimeoutError when a rank has not posted its address before the
/// deadline.
PeerConnections connect_peers(const JoinOptions& self, BootstrapStore& store);

}  // namespace lockstep::shm
