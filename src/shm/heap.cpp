#include "shm/heap.hpp"

#include <algorithm>
#include <iterator>

#include "lockstep/core/error.hpp"
#include "shm/futex_event.hpp"

namespace lockstep::shm {
namespace {

constexpr std::size_t kReturned = 4U << 20;  // Smaller pieces are kept: taking them anew costs page faults.

}  // namespace

/// The first free block that is large enough, else the space behind the last.
std::optional<std::size_t> Heap::take(std::size_t bytes) {
  const auto found =
      std::find_if(free_.begin(), free_.end(), [&](const auto& block) { return block.second >= bytes; });
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
    // Pages that a neighbour shares stay.
    const std::size_t first = whole_pages(offset);
    const std::size_t last = (offset + length) / whole_pages(1) * whole_pages(1);
    if (last > first) segment_->release(first, last - first);
  }
  give_back(offset, length);
}

/// Joined with the free neighbours.
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
  const auto* place = static_cast<const std::byte*>(memory);
  const std::size_t length = segment_->size() - start_;
  if (std::less<>()(place, first)) return -1;
  const auto distance = static_cast<std::size_t>(place - first);
  if (distance > length || bytes > length - distance) return -1;
  return static_cast<std::int64_t>(start_ + distance);
}

}  // namespace lockstep::shm
