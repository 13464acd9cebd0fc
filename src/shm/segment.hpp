#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "net/file_descriptor.hpp"

namespace lockstep::shm {

/// Throws CommunicationError: `what`, and the system's reason in errno.
[[noreturn]] void throw_system_error(const std::string& what);

/// One rank's shared memory, mapped into this process. It has no name: it lives as long as somebody maps it
/// or holds its descriptor, so nothing is left of it after any death, and a small /dev/shm does not limit it.
///
/// Its size is fixed and sealed, so that no peer can shrink it under a reader. Most of it is only address
/// space; memory is taken by reserve(), which fails with an error and not with a signal at the first touch.
class Segment {
 public:
  /// Makes this rank's own. Throws CommunicationError when the system refuses.
  static std::shared_ptr<Segment> create(std::size_t size);

  /// Maps a peer's. Throws CommunicationError unless it has the size that the peer says and is sealed.
  static std::shared_ptr<Segment> open(net::FileDescriptor descriptor, std::size_t size);

  /// The segment that a rank of this very process made, found by its token: ranks that are threads see it at
  /// one address. Null where there is none.
  static std::shared_ptr<Segment> of_this_process(std::uint64_t token);

  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  std::byte* base() const noexcept { return base_; }
  std::size_t size() const noexcept { return size_; }
  int descriptor() const noexcept { return descriptor_.get(); }
  std::uint64_t token() const noexcept { return token_; }

  /// Takes memory for these bytes; afterwards touching them cannot fail. Throws CommunicationError saying how
  /// much was asked for. Owner only; any thread.
  void reserve(std::size_t offset, std::size_t bytes) const;

  /// Gives the memory of whole pages in this range back; they read as zeros then. Owner only; any thread.
  void release(std::size_t offset, std::size_t bytes) const noexcept;

 private:
  Segment(net::FileDescriptor descriptor, std::size_t size, std::uint64_t token);

  net::FileDescriptor descriptor_;  // Kept by the owner only.
  std::size_t size_;
  std::uint64_t token_;  // 0: a peer's.
  std::byte* base_;
};

/// `bytes` rounded up to whole pages.
std::size_t whole_pages(std::size_t bytes);

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
