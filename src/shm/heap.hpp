#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "shm/segment.hpp"

namespace lockstep::shm {

/// Memory of a rank that all ranks of its group see: an all_reduce whose buffers lie in the heaps of all
/// ranks works on them in place. It grows as it is used; large pieces that are given back return to the
/// system. Any thread may call any method. It may outlive the group.
class Heap {
 public:
  Heap(std::shared_ptr<Segment> segment, std::size_t start) : segment_(std::move(segment)), start_(start) {}

  /// At least 64-byte aligned; null when the address space set aside is used up. Throws CommunicationError
  /// when the system has no more memory.
  void* allocate(std::size_t bytes);
  /// `memory` was allocated here.
  void free(void* memory) noexcept;

  /// Where in the segment these bytes lie; -1 when they are not in this heap.
  std::int64_t offset_of(const void* memory, std::size_t bytes) const noexcept;

 private:
  using Blocks = std::map<std::size_t, std::size_t>;  // Offset to length.

  std::optional<std::size_t> take(std::size_t bytes);
  void give_back(std::size_t offset, std::size_t bytes) noexcept;

  std::shared_ptr<Segment> segment_;
  std::size_t start_;
  std::mutex mutex_;
  std::size_t end_ = start_;  // Of what has ever been used.
  Blocks free_;
  Blocks used_;
};

}  // namespace lockstep::shm
