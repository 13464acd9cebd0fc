#pragma once

#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "shm/group.hpp"
#include "shm/transport.hpp"

namespace lockstep::comm {

using BackendPointer = c10::intrusive_ptr<c10d::Backend>;

/// What such a backend works with.
struct SharedMemory {
  std::shared_ptr<shm::Group> group;  // All ranks, or those of this host.
  std::shared_ptr<shm::Transport> transport;
  /// Gloo for all ranks, which carries messages and what a rank gives each other rank for itself (gather,
  /// scatter, all_to_all) where the group spans hosts. Null: all ranks share memory.
  BackendPointer flat;
  /// Makes the backend for what shared memory cannot do (sparse tensors) where there is no `flat`; called by
  /// all ranks in the same operation.
  std::function<BackendPointer()> make_fallback;
  int cpu = -1;  // Where the thread runs that communicates; -1: anywhere.
};

/// c10d's view of a group whose ranks share memory, at least some. Its destructor waits for what is still in
/// flight, then leaves the group.
BackendPointer make_shm_backend(int rank, int size, SharedMemory memory);

/// The heap of this rank in a group whose CPU tensors are carried by such a backend; null for any other
/// group.
std::shared_ptr<shm::Heap> shared_heap_of(c10d::ProcessGroup& group);

/// Why one of these ranks of the world will not come to anything again: it has ended, or left; "" as far as
/// is known here, and for a group without such a backend. Any thread.
std::string gone_from_memory(c10d::ProcessGroup& group, const std::vector<int>& ranks);

/// Tells those who share memory with this rank why it will not come again, at once. Any thread.
void announce_failure(c10d::ProcessGroup& group, const std::string& words) noexcept;

/// Tells the others that this rank will not come again, without waking them: they fail within a moment, in
/// which this rank can report why. For a rank that ends by an exception and leaves its connections behind.
/// Does nothing for a group without such a backend.
void leave_group(c10d::ProcessGroup& group) noexcept;

}  // namespace lockstep::comm
