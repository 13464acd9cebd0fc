#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "shm/futex_event.hpp"
#include "shm/segment.hpp"
#include "shm/types.hpp"

namespace lockstep::shm {

// The content of a rank's segment: Control, one Channel per receiving rank, two staging areas and the heap.

inline constexpr std::uint64_t kMagic = 0x6c6f636b73746570;

struct alignas(kLine) StepSlot {
  Call call;
  std::int64_t heap_offset;  // Of the buffer; -1: not in the heap.
};

enum class Presence : std::uint32_t { here, left, failed };

struct Control {
  alignas(kLine) std::atomic<std::uint64_t> step;  // The last step for which this rank is ready.
  FutexEvent steps;                                // All ranks use rank 0's.
  FutexEvent messages;                             // For messages to this rank.
  alignas(kLine) std::atomic<Presence> presence;
  std::atomic<std::uint64_t> begun;  // Number of operations begun.
  char failure_text[512];            // Valid when presence is `failed`.
  StepSlot step_slots[2];            // Indexed by the parity of their step.
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "other processes share them");

enum class Delivery : std::uint32_t { free, posted };

/// A message of a P2PQueue.
struct P2PSlot {
  std::atomic<Delivery> state;
  std::int32_t tag;
  std::uint64_t number;  // Counts the messages of the channel, for their order.
  std::uint64_t count;
  std::uint64_t offset;  // In the sender's segment.
  Dtype dtype;
};

inline constexpr int kP2PSlots = 64;

struct alignas(kLine) Channel {
  P2PSlot slots[kP2PSlots];
};

struct Layout {
  std::size_t channels;
  std::size_t staging;
  std::size_t staging_bytes;  // Of one area.
  std::size_t heap;
  std::size_t size;

  static Layout of(int ranks, std::size_t staging_bytes, std::size_t heap_bytes) {
    Layout layout{};
    layout.channels = whole_pages(sizeof(Control));
    layout.staging = layout.channels + whole_pages(sizeof(Channel) * static_cast<std::size_t>(ranks));
    layout.staging_bytes = whole_pages(staging_bytes);
    layout.heap = layout.staging + 2 * layout.staging_bytes;
    layout.size = layout.heap + whole_pages(heap_bytes);
    return layout;
  }
};

inline Control& control_of(const Segment& segment) { return *reinterpret_cast<Control*>(segment.base()); }

/// A range split into equal pieces, the last one shorter. At least one piece, so that an empty range also
/// takes a step.
struct Chunks {
  std::size_t total;
  std::size_t each;

  std::size_t count() const { return std::max<std::size_t>(1, (total + each - 1) / each); }
  std::size_t start(std::size_t i) const { return std::min(total, i * each); }
  std::size_t length(std::size_t i) const { return std::min(each, total - start(i)); }
};

/// The number of elements of `element_bytes` that fit 1/`parts` of a staging area, in whole cache lines.
inline std::size_t elements_per_part(std::size_t staging_bytes, int parts, std::size_t element_bytes) {
  const std::size_t bytes = staging_bytes / static_cast<std::size_t>(parts) / kLine * kLine;
  return std::max<std::size_t>(1, bytes / element_bytes);
}

struct Range {
  std::size_t start;
  std::size_t length;
};

/// One of `parts` equal slices of `count` elements, in whole cache lines, of at most `most` elements.
inline Range slice_of(std::size_t count, int parts, int index, std::size_t element_bytes,
                      std::size_t most = std::numeric_limits<std::size_t>::max()) {
  const std::size_t per_line = std::max<std::size_t>(1, kLine / element_bytes);
  const auto ways = static_cast<std::size_t>(parts);
  const std::size_t even = (count + ways - 1) / ways;
  const std::size_t each = std::min(most, (even + per_line - 1) / per_line * per_line);
  const std::size_t start = std::min(count, each * static_cast<std::size_t>(index));
  return {start, std::min(each, count - start)};
}

inline std::byte* at(void* data, std::size_t byte) { return static_cast<std::byte*>(data) + byte; }
inline const std::byte* at(const void* data, std::size_t byte) {
  return static_cast<const std::byte*>(data) + byte;
}

/// The buffers may be the same; null is allowed if `bytes` is 0.
inline void copy_bytes(void* to, const void* from, std::size_t bytes) {
  if (to != from && bytes > 0) std::memmove(to, from, bytes);
}

}  // namespace lockstep::shm
