#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "shm/collectives.hpp"

namespace lockstep::shm {

/// Send and receive between two ranks. The sender copies the message into its own heap and returns. A receive
/// takes the oldest message with its tag, whatever other messages are queued before it; of two receives that
/// the same message would suit, the one that was called first gets it, whoever waits. A queued message
/// outlives its sender. Any thread may call any method.
class P2PQueue {
 public:
  static constexpr int kAnySource = -1;

  struct Receive {
    int source;
    int tag;
    void* data;
    Elements elements;
    std::shared_ptr<const void> owner = nullptr;  // Of the memory, which stays until the message has come.
    bool done = false;
    int from = -1;
    std::exception_ptr failure = nullptr;
  };
  using Handle = std::shared_ptr<Receive>;

  P2PQueue(const StepSync& sync, Heap& heap);

  /// Blocks only while kP2PSlots messages to that rank are queued, or the heap is full; throws as the
  /// collectives do.
  void send(int destination, int tag, const void* data, Elements elements);

  Handle receive(Receive request);
  /// Whether it has ended, well or badly.
  bool is_done(const Handle& receive);
  /// Returns the source when the message has come. Throws CommunicationError, having dropped the message,
  /// when its size or dtype is not the expected one, and as the collectives do when the source can send
  /// nothing any more.
  int wait(const Handle& receive);

 private:
  std::vector<int> others(int source) const;
  void wait_until(int source, const std::function<bool()>& done, const std::function<std::string()>& what);
  void reclaim(int destination);
  bool post(int destination, int tag, const void* data, Elements elements);
  P2PSlot* find(int source, int tag) const;
  void take_if_there(Receive& request);
  void take(Receive& request, int from, P2PSlot& slot);
  Channel& channel(int from, int to) const {
    return reinterpret_cast<Channel*>(sync_.segment_of(from).base() + sync_.layout().channels)[to];
  }

  const StepSync& sync_;
  Heap& heap_;
  std::mutex send_mutex_;
  std::mutex receive_mutex_;
  std::vector<std::array<void*, kP2PSlots>> sent_;  // For each rank, the memory behind its slots.
  std::vector<std::uint64_t> numbers_;
  std::list<Handle> receives_;  // That have not ended, in the order in which they were called.
};

}  // namespace lockstep::shm
