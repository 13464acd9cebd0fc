#pragma once

#include <memory>
#include <string>
#include <vector>

#include "net/deadline.hpp"
#include "net/file_descriptor.hpp"
#include "shm/board.hpp"
#include "shm/segment.hpp"

namespace lockstep::shm {

struct Peer {
  std::shared_ptr<Segment> segment;
  net::FileDescriptor lifeline;  // A pidfd: readable when the process has ended. None: it cannot be watched.
  int pid = 0;
};

/// How the ranks of a group found each other.
struct Meeting {
  std::vector<Peer> peers;    // In rank order, this rank among them.
  bool a_cpu_each = false;    // All CPUs that the ranks may use are at least as many as the ranks.
  std::string obstacle = "";  // Why they do not share memory; the same text on every rank. Empty: they do.
};

/// Exchanges segments with the other ranks. *Collective*. That the ranks do not share memory, because they
/// are on several hosts or cannot reach each other (containers, users), is a result and not an error, and all
/// ranks get the same one. Throws, on every rank, when a rank could not make its segment; TimeoutError when a
/// rank does not come before the deadline.
Meeting meet(int rank, int size, Board& board, net::Deadline deadline, std::size_t segment_size,
             std::size_t reserved);

}  // namespace lockstep::shm
