#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "device_copy.hpp"

namespace lockstep {

/// Sets the calling thread up as a loader's worker: named for debuggers, and LibTorch's kernels run on this
/// thread alone. Several workers that each start a pool of their own would fight the training step for the
/// cores. Other threads keep their setting.
void prepare_worker_thread();

/// Threads that read numbered batches ahead and hand them out in order, one run of numbers after another.
///
/// In a run `read(number)` is called for 0, 1, ..., count - 1, once each, by any thread. At most `depth`
/// batches are being read or wait at any time. What read() throws comes out of next() at that batch's turn.
/// start(), next() and drop() belong to one thread.
class Prefetcher {
 public:
  using Read = std::function<PrefetchedBatch(std::int64_t)>;
  using Init = std::function<void(int worker)>;

  Prefetcher(int workers, std::int64_t depth, Init init);
  ~Prefetcher() { stop(); }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// Begins a run; the one before must have been dropped or read to its end.
  void start(Read read, std::int64_t count);

  /// Ends the run: waits for the batches that are being read, and forgets them. `read` is not used any more.
  void drop() noexcept;

  /// The next batch, waiting for it; nothing after the last. Throws what `init` threw in a worker.
  std::optional<PrefetchedBatch> next();

 private:
  struct Slot {
    bool ready = false;
    PrefetchedBatch batch;
    std::exception_ptr failure;
  };

  void stop() noexcept;
  void work(int worker);
  bool prepared(int worker);
  std::optional<std::int64_t> claim();
  void fill(std::int64_t number);
  bool has_room() const { return claimed_ < count_ && claimed_ < delivered_ + depth_; }
  Slot& slot_of(std::int64_t number) { return slots_[static_cast<std::size_t>(number % depth_)]; }

  const std::int64_t depth_;
  const Init init_;
  Read read_;         // changes only while no worker reads
  std::mutex mutex_;  // guards everything below but threads_
  std::condition_variable room_;
  std::condition_variable filled_;
  std::vector<Slot> slots_;
  std::exception_ptr unprepared_;
  std::int64_t count_ = 0;
  std::int64_t claimed_ = 0;
  std::int64_t delivered_ = 0;
  std::int64_t reading_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace lockstep
