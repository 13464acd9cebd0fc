#pragma once

#include <cstddef>
#include <memory>

#include "lockstep/comm/process_group.hpp"

namespace lockstep::shm {
class Heap;
}

namespace lockstep::comm {

/// While one lives, large CPU tensors that this thread makes lie in memory that all ranks of the group see,
/// so that all_reduce works on them in place, without copies. Without effect for a group that does not share
/// memory. What was allocated stays valid when the scope, and when the group is gone. *Local*; scopes of one
/// thread may be nested, the innermost counts.
class SharedAllocation {
 public:
  explicit SharedAllocation(const ProcessGroup& group);
  ~SharedAllocation();
  SharedAllocation(const SharedAllocation&) = delete;
  SharedAllocation& operator=(const SharedAllocation&) = delete;

  /// Smaller tensors are as fast elsewhere.
  static constexpr std::size_t kSmallest = 64U << 10;

 private:
  std::shared_ptr<shm::Heap> heap_;
  const std::shared_ptr<shm::Heap>* outer_;
};

}  // namespace lockstep::comm
