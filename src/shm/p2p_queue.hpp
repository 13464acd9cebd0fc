#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "shm/collectives.hpp"

namespace lockstep::shm {

/// Send and receive between two ranks. The sender copies the message into its own heap and returns; the
/// receiver takes the oldest message with the tag, whatever other messages are queued before it. A queued
/// message outlives its sender. Any thread may call any method.
class P2PQueue {
 public:
  P2PQueue(const StepSync& sync, Heap& heap);

  /// Blocks only while kP2PSlots messages to that rank are queued, or the heap is full; throws as the
  /// collectives do.
  void send(int destination, int tag, const void* data, Elements elements);

  static constexpr int kAnySource = -1;

  /// Receives a message if one is queued, and returns its source. Throws CommunicationError, and drops the
  /// message, when its size or dtype is not the expected one.
  std::optional<int> try_receive(int source, int tag, void* data, Elements elements);

  /// Returns when done(), which is evaluated again whenever a message may have arrived. Throws as the
  /// collectives do when `source` can send nothing any more; `what` names the operation in the error.
  void wait_for_message(int source, const std::function<bool()>& done,
                        const std::function<std::string()>& what);

 private:
  std::vector<int> others(int source) const;
  void reclaim(int destination);
  bool post(int destination, int tag, const void* data, Elements elements);
  P2PSlot* find(int source, int tag) const;
  Channel& channel(int from, int to) const { return channel_of(sync_.segment_of(from), sync_.layout(), to); }

  const StepSync& sync_;
  Heap& heap_;
  std::mutex send_mutex_;
  std::mutex receive_mutex_;
  std::vector<std::array<void*, kP2PSlots>> sent_;  // For each rank, the memory behind its slots.
  std::vector<std::uint64_t> numbers_;
};

}  // namespace lockstep::shm
