#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "lockstep/data/batch.hpp"

namespace lockstep {

/// Threads that read numbered batches ahead and hand them out in order.
///
/// `read(number)` is called for 0, 1, ..., count - 1, once each, by any thread. At most `depth` batches are
/// being read or wait at any time. What read() throws comes out of next() at that batch's turn.
class Prefetcher {
 public:
  using Read = std::function<Batch(std::int64_t)>;

  Prefetcher(Read read, std::int64_t count, int workers, std::int64_t depth);
  ~Prefetcher() { stop(); }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// The next batch, waiting for it; nothing after the last. Called by one thread.
  std::optional<Batch> next();

 private:
  struct Slot {
    bool ready = false;
    Batch batch;
    std::exception_ptr failure;
  };

  void stop() noexcept;
  void work();
  std::optional<std::int64_t> claim();
  void fill(std::int64_t number);
  Slot& slot_of(std::int64_t number) { return slots_[static_cast<std::size_t>(number % depth_)]; }

  const Read read_;
  const std::int64_t count_;
  const std::int64_t depth_;
  std::mutex mutex_;  // guards everything below but threads_
  std::condition_variable room_;
  std::condition_variable filled_;
  std::vector<Slot> slots_;
  std::int64_t claimed_ = 0;
  std::int64_t delivered_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace lockstep
