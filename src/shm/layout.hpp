#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shm/futex_event.hpp"
#include "shm/segment.hpp"
#include "shm/types.hpp"

namespace lockstep::shm {

// What a rank's segment holds: Control, one Channel for each rank that it may send to, two staging areas and
// the heap.

inline constexpr std::uint64_t kMagic = 0x6c6f636b73746570;

/// The fingerprint of a collective call: compared by all ranks before anything is done. Without padding, so
/// that it can be compared as a whole.
struct Call {
  std::uint64_t sequence = 0;
  std::uint64_t count = 0;
  std::int32_t root = -1;
  Operation operation = Operation::barrier;
  Dtype dtype = Dtype::bytes;
  Reduction reduction = Reduction::none;
  std::uint8_t version = 1;

  bool operator==(const Call&) const = default;
};

struct alignas(kLine) StepSlot {
  Call call;
  std::int64_t heap_offset;  // Of the buffer; -1: it lies elsewhere.
};

enum class Presence : std::uint32_t { here, left, failed };

struct Control {
  alignas(kLine) std::atomic<std::uint64_t> step;  // The last step that this rank has finished its part of.
  FutexEvent steps;                                // Rank 0's is everybody's.
  FutexEvent messages;                             // For messages to this rank.
  alignas(kLine) std::atomic<Presence> presence;
  std::atomic<std::uint64_t> begun;  // Operations.
  char failure_text[512];            // Valid when presence is `failed`.
  StepSlot step_slots[2];            // By the parity of the step that they were written for.
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "other processes share them");

enum class Delivery : std::uint32_t { free, posted };

/// A message of a P2PQueue.
struct P2PSlot {
  std::atomic<Delivery> state;
  std::int32_t tag;
  std::uint64_t number;  // Counts the messages of the channel; gives their order.
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

inline Channel& channel_of(const Segment& segment, const Layout& layout, int destination) {
  return reinterpret_cast<Channel*>(segment.base() + layout.channels)[destination];
}

}  // namespace lockstep::shm
