#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace lockstep {

/// Threads that run one function. wait() and rethrow() rethrow the first exception of a thread. *Local*.
class ThreadPool {
 public:
  /// `body(thread, stop)` runs in each of `threads` threads, numbered from 0. It must return soon after
  /// `stop` becomes true: another thread has thrown, or the pool is being destroyed.
  using Body = std::function<void(std::size_t thread, const std::atomic<bool>& stop)>;

  ThreadPool(std::size_t threads, Body body);
  /// Stops all threads and waits for them.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  void stop() noexcept { stop_ = true; }
  /// Waits at most `time`. Returns whether all threads have returned.
  bool wait_for(std::chrono::milliseconds time);
  /// Waits until all threads have returned, then calls rethrow().
  void wait();
  /// Rethrows the first exception of a thread, if any.
  void rethrow();

 private:
  void join();
  void run(std::size_t thread);

  Body body_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable ended_;
  std::size_t running_;
  std::exception_ptr failure_;
  std::vector<std::thread> threads_;
};

/// Calls `work` on ranges of at most `length` indices that cover [0, count), in `threads` threads including
/// the calling one. Ranges are handed out in order. If ranges throw, rethrows the exception of the first one
/// after all threads have ended; every range before it has been processed, and no more ranges are started.
void parallel_for(std::size_t count, std::size_t length, std::size_t threads,
                  const std::function<void(std::size_t begin, std::size_t end)>& work);

}  // namespace lockstep
