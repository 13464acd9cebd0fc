#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "data/device_copy.hpp"

namespace lockstep {

/// Sets up the calling thread as a loader's worker: names it for debuggers, and limits LibTorch's kernels to
/// this thread. Several workers with their own thread pools would compete with the training step for the
/// cores. Other threads keep their setting.
void prepare_worker_thread();

/// Threads that read numbered batches ahead and return them in order. They process one run of numbers after
/// another.
///
/// In a run, `read(number)` is called for 0, 1, ..., count - 1, once each, by any thread. At most `depth`
/// batches are being read or waiting. An exception of read() is rethrown by next() when it is that batch's
/// turn. start(), next() and drop() belong to one thread.
class Prefetcher {
 public:
  using Read = std::function<PrefetchedBatch(std::int64_t)>;
  using Init = std::function<void(int worker)>;

  Prefetcher(int workers, std::int64_t depth, Init init);
  ~Prefetcher() { stop(); }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// Begins a run; the previous one must have been dropped or read to its end.
  void start(Read read, std::int64_t count);

  /// Ends the run: waits for the batches that are being read, and discards them. `read` is not used any more.
  void drop() noexcept;

  /// Waits for the next batch and returns it; nothing after the last. Rethrows what `init` threw in a worker.
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
  Read read_;         // modified only while no worker reads
  std::mutex mutex_;  // guards everything below except threads_
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
