#include "shm/segment.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>

#include "lockstep/core/error.hpp"
#include "net/sha256.hpp"
#include "shm/futex_event.hpp"

namespace lockstep::shm {
namespace {

constexpr std::size_t kReturned = 4U << 20;  // Smaller blocks are kept: reallocating them costs page faults.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

/// Segments of ranks that are threads of this process.
struct OwnSegments {
  std::mutex mutex;
  std::map<std::uint64_t, std::weak_ptr<Segment>> by_token;
};

/// Never destroyed: a program's global ProcessGroup may be destroyed later.
OwnSegments& own_segments() {
  static auto& segments = *new OwnSegments();
  return segments;
}

net::FileDescriptor make_sealed(std::size_t size) {
  net::FileDescriptor descriptor(memfd_create("lockstep", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!descriptor) throw_system_error("cannot make shared memory (memfd_create)");
  if (ftruncate(descriptor.get(), static_cast<off_t>(size)) != 0 ||
      fcntl(descriptor.get(), F_ADD_SEALS, kSeals) != 0) {
    throw_system_error(fmt::format("cannot make shared memory of {} bytes", size));
  }
  return descriptor;
}

}  // namespace

void throw_system_error(const std::string& what) {
  throw CommunicationError(what + ": " + std::system_category().message(errno));
}

std::size_t whole_pages(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

std::shared_ptr<Segment> Segment::create(std::size_t size) {
  std::uint64_t token = 0;
  std::memcpy(&token, net::random_bytes(sizeof(token)).data(), sizeof(token));
  std::shared_ptr<Segment> segment(new Segment(make_sealed(size), size, token | 1U));
  auto& own = own_segments();
  const std::lock_guard lock(own.mutex);
  own.by_token[segment->token_] = segment;
  return segment;
}

std::shared_ptr<Segment> Segment::open(net::FileDescriptor descriptor, std::size_t size) {
  struct stat facts {};
  if (fstat(descriptor.get(), &facts) != 0) throw_system_error("cannot look at a peer's shared memory");
  const bool sealed = (fcntl(descriptor.get(), F_GET_SEALS) & kSeals) == kSeals;
  if (!sealed || static_cast<std::size_t>(facts.st_size) != size) {
    throw CommunicationError(
        fmt::format("a peer's shared memory is not valid: expected {} sealed bytes, but it has {}{}", size,
                    facts.st_size, sealed ? "" : " and no seals"));
  }
  std::shared_ptr<Segment> segment(new Segment(std::move(descriptor), size, 0));
  segment->descriptor_.reset();
  return segment;
}

std::shared_ptr<Segment> Segment::of_this_process(std::uint64_t token) {
  auto& own = own_segments();
  const std::lock_guard lock(own.mutex);
  const auto found = own.by_token.find(token);
  return found == own.by_token.end() ? nullptr : found->second.lock();
}

Segment::Segment(net::FileDescriptor descriptor, std::size_t size, std::uint64_t token)
    : descriptor_(std::move(descriptor)), size_(size), token_(token) {
  void* where =
      mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor_.get(), 0);
  if (where == MAP_FAILED) throw_system_error(fmt::format("cannot map shared memory of {} bytes", size_));
  base_ = static_cast<std::byte*>(where);
}

Segment::~Segment() {
  munmap(base_, size_);
  if (token_ == 0) return;
  auto& own = own_segments();
  const std::lock_guard lock(own.mutex);
  own.by_token.erase(token_);
}

void Segment::reserve(std::size_t offset, std::size_t bytes) const {
  const auto taken = file_system::uninterrupted(
      [&] { return fallocate(descriptor_.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)); });
  if (taken != 0) throw_system_error(fmt::format("cannot take {} bytes of shared memory", bytes));
}

void Segment::release(std::size_t offset, std::size_t bytes) const noexcept {
  const int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  static_cast<void>(
      fallocate(descriptor_.get(), mode, static_cast<off_t>(offset), static_cast<off_t>(bytes)));
}

/// The first free block that is large enough, otherwise the space after the last block.
std::optional<std::size_t> Heap::take(std::size_t bytes) {
  const auto found = std::ranges::find_if(free_, [&](const auto& block) { return block.second >= bytes; });
  if (found != free_.end()) {
    const auto [offset, length] = *found;
    free_.erase(found);
    if (length > bytes) free_[offset + bytes] = length - bytes;
    return offset;
  }
  if (segment_->size() - end_ < bytes) return std::nullopt;
  const std::size_t offset = end_;
  end_ += bytes;
  return offset;
}

void* Heap::allocate(std::size_t bytes) {
  bytes = std::max(kLine, (bytes + kLine - 1) / kLine * kLine);
  const std::lock_guard lock(mutex_);
  const auto offset = take(bytes);
  if (!offset) return nullptr;
  used_[*offset] = bytes;
  try {
    segment_->reserve(*offset, bytes);
  } catch (const Error&) {
    used_.erase(*offset);
    give_back(*offset, bytes);
    throw;
  }
  return segment_->base() + *offset;
}

void Heap::free(void* memory) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = used_.find(static_cast<std::size_t>(static_cast<std::byte*>(memory) - segment_->base()));
  if (found == used_.end()) return;
  const auto [offset, length] = *found;
  used_.erase(found);
  if (length >= kReturned) {
    // Keeps pages that are shared with neighboring blocks.
    const std::size_t first = whole_pages(offset);
    const std::size_t last = (offset + length) / whole_pages(1) * whole_pages(1);
    if (last > first) segment_->release(first, last - first);
  }
  give_back(offset, length);
}

/// Merges the block with its free neighbors.
void Heap::give_back(std::size_t offset, std::size_t bytes) noexcept {
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + bytes) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      offset = before->first;
      bytes += before->second;
      free_.erase(before);
    }
  }
  if (offset + bytes == end_) {
    end_ = offset;
  } else {
    free_[offset] = bytes;
  }
}

std::int64_t Heap::offset_of(const void* memory, std::size_t bytes) const noexcept {
  const auto* first = segment_->base() + start_;
  const auto* address = static_cast<const std::byte*>(memory);
  const std::size_t length = segment_->size() - start_;
  if (std::less<>()(address, first)) return -1;
  const auto distance = static_cast<std::size_t>(address - first);
  if (distance > length || bytes > length - distance) return -1;
  return static_cast<std::int64_t>(start_ + distance);
}

}  // namespace lockstep::shm
