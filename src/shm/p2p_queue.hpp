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
/// takes the oldest message with its tag, regardless of other queued messages. If a message matches two
/// receives, the one called first gets it, whichever thread waits. A queued message outlives its sender. Any
/// thread may call any method.
class P2PQueue {
 public:
  static constexpr int kAnySource = -1;

  struct Receive {
    int source;
    int tag;
    void* data;
    Elements elements;
    std::shared_ptr<const void> owner = nullptr;  // Keeps the memory alive until the message is received.
    bool done = false;
    int from = -1;
    std::exception_ptr failure = nullptr;
  };
  using Handle = std::shared_ptr<Receive>;

  P2PQueue(const StepSync& sync, Heap& heap);

  /// Blocks only while kP2PSlots messages to that rank are queued or the heap is full. Throws as the
  /// collectives do.
  void send(int destination, int tag, const void* data, Elements elements);

  Handle receive(Receive request);
  /// Whether it has ended, successfully or not.
  bool is_done(const Handle& receive);
  /// Returns the source when the message has been received. Throws CommunicationError and drops the message
  /// if its size or dtype is not the expected one; throws as the collectives do if the source can no longer
  /// send.
  int wait(const Handle& receive);
  /// Null: no failure is known.
  std::exception_ptr failure_of(const Handle& receive);
  /// The source; -1: not received yet.
  int source_of(const Handle& receive);

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
  std::vector<std::array<void*, kP2PSlots>> sent_;  // Per rank, the memory of its slots.
  std::vector<std::uint64_t> numbers_;
  std::list<Handle> receives_;  // Not ended yet, in the order of the calls.
};

}  // namespace lockstep::shm
