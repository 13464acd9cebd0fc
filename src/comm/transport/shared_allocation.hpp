#pragma once

#include <cstddef>
#include <memory>

#include "lockstep/comm/process_group.hpp"

namespace lockstep::shm {
class Heap;
}

namespace lockstep::comm {

/// While such an object exists, this thread allocates large CPU tensors in memory that all ranks of the group
/// can access, so that all_reduce works on them in place, without copies. No effect if the group does not
/// share memory. Tensors remain valid after the scope, and after the group. *Local*; scopes of a thread may
/// be nested, the innermost one applies.
class SharedAllocation {
 public:
  explicit SharedAllocation(const ProcessGroup& group);
  ~SharedAllocation();
  SharedAllocation(const SharedAllocation&) = delete;
  SharedAllocation& operator=(const SharedAllocation&) = delete;

  /// Sharing smaller tensors is no faster.
  static constexpr std::size_t kSmallest = 64U << 10;

 private:
  std::shared_ptr<shm::Heap> heap_;
  const std::shared_ptr<shm::Heap>* outer_;
};

}  // namespace lockstep::comm
