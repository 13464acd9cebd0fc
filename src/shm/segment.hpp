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

/// Throws CommunicationError with `what` and the message for errno.
[[noreturn]] void throw_system_error(const std::string& what);

/// One rank's shared memory, mapped into this process. It has no name and exists as long as a process maps it
/// or holds its descriptor, so nothing is left after a crash, and a small /dev/shm does not limit it.
///
/// Its size is fixed and sealed, so that no peer can shrink it while another reads. Most of it is only
/// address space; memory is allocated by reserve(), which fails with an error instead of a signal on first
/// access.
class Segment {
 public:
  /// Creates this rank's own segment. Throws CommunicationError if the system refuses.
  static std::shared_ptr<Segment> create(std::size_t size);

  /// Maps a peer's segment. Throws CommunicationError unless it is sealed and has the size given by the peer.
  static std::shared_ptr<Segment> open(net::FileDescriptor descriptor, std::size_t size);

  /// The segment of a rank in this process, found by its token, so that ranks that are threads use the same
  /// mapping. Null if there is none.
  static std::shared_ptr<Segment> of_this_process(std::uint64_t token);

  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  std::byte* base() const noexcept { return base_; }
  std::size_t size() const noexcept { return size_; }
  int descriptor() const noexcept { return descriptor_.get(); }
  std::uint64_t token() const noexcept { return token_; }

  /// Allocates memory for these bytes; accessing them cannot fail afterwards. Throws CommunicationError with
  /// the size requested. Owner only; any thread.
  void reserve(std::size_t offset, std::size_t bytes) const;

  /// Returns the memory of whole pages in this range to the system; they read as zeros then. Owner only; any
  /// thread.
  void release(std::size_t offset, std::size_t bytes) const noexcept;

 private:
  Segment(net::FileDescriptor descriptor, std::size_t size, std::uint64_t token);

  net::FileDescriptor descriptor_;  // Kept by the owner only.
  std::size_t size_;
  std::uint64_t token_;  // 0: a peer's segment.
  std::byte* base_;
};

/// `bytes` rounded up to whole pages.
std::size_t whole_pages(std::size_t bytes);

/// Memory of a rank that all ranks of its group can access: an all_reduce whose buffers are in the heaps of
/// all ranks works on them in place. It grows on demand; large freed blocks are returned to the system. Any
/// thread may call any method. It may outlive the group.
class Heap {
 public:
  Heap(std::shared_ptr<Segment> segment, std::size_t start) : segment_(std::move(segment)), start_(start) {}

  /// At least 64-byte aligned; null if the address space is used up. Throws CommunicationError if the system
  /// has no more memory.
  void* allocate(std::size_t bytes);
  /// Ignores memory that was not allocated here.
  void free(void* memory) noexcept;

  /// Offset of these bytes in the segment; -1 if they are not in this heap.
  std::int64_t offset_of(const void* memory, std::size_t bytes) const noexcept;

 private:
  using Blocks = std::map<std::size_t, std::size_t>;  // Offset to length.

  std::optional<std::size_t> take(std::size_t bytes);
  void give_back(std::size_t offset, std::size_t bytes) noexcept;

  std::shared_ptr<Segment> segment_;
  std::size_t start_;
  std::mutex mutex_;
  std::size_t end_ = start_;  // End of the used range.
  Blocks free_;
  Blocks used_;
};

}  // namespace lockstep::shm
