#pragma once

#include <functional>
#include <memory>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "shm/group.hpp"

namespace lockstep::comm {

using BackendPointer = c10::intrusive_ptr<c10d::Backend>;

/// c10d's view of a group that shares memory. Its destructor waits for what is still in flight, then leaves
/// the group. `fallback` makes the backend for what shared memory cannot do (sparse tensors); it is called by
/// all ranks in the same operation.
BackendPointer make_shm_backend(std::unique_ptr<shm::Group> group, std::function<BackendPointer()> fallback);

/// The heap of a group whose CPU tensors are carried by such a backend; null for any other group.
std::shared_ptr<shm::Heap> shared_heap_of(c10d::ProcessGroup& group);

/// Tells the others that this rank will not come again, without waking them: they fail within a moment, in
/// which this rank can report why. For a rank that ends by an exception and leaves its connections behind.
/// Does nothing for a group without such a backend.
void leave_group(c10d::ProcessGroup& group) noexcept;

}  // namespace lockstep::comm
