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

/// Messages from rank to rank. The sender puts a copy into its own heap and goes on; the receiver takes the
/// oldest one with the tag, whatever else waits before it. Both survive the end of the sender. Any thread may
/// call any method.
class P2PQueue {
 public:
  P2PQueue(const StepSync& sync, Heap& heap);

  /// Waits only while kP2PSlots messages to that rank wait already, or memory is short; throws as the
  /// collectives do.
  void send(int destination, int tag, const void* data, Elements elements);

  static constexpr int kAnySource = -1;

  /// Takes a message if there is one: the rank that it came from. Throws CommunicationError when it is not of
  /// the size and dtype expected; it is gone then.
  std::optional<int> try_receive(int source, int tag, void* data, Elements elements);

  /// Returns when done(), which is asked again whenever a message may have come. Throws, as the collectives
  /// do, when nothing can come from `source` any more. `what` names the operation then.
  void wait_for_message(int source, const std::function<bool()>& done,
                        const std::function<std::string()>& what);

 private:
  std::vector<int> others(int source) const;
  void reclaim(int destination);
  bool post(int destination, int tag, const void* data, Elements elements);
  P2PSlot* find(int source, int tag) const;
  P2PSlot* oldest(int source, int tag) const;
  Control& control(int member) const;
  Channel& channel(int from, int to) const;

  const StepSync& sync_;
  Heap& heap_;
  std::mutex send_mutex_;
  std::mutex receive_mutex_;
  std::vector<std::array<void*, kP2PSlots>> sent_;  // For each rank, the memory behind its slots.
  std::vector<std::uint64_t> numbers_;
};

}  // namespace lockstep::shm
