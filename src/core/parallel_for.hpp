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

/// Threads that run one function, whose errors come out of the thread that made them. *Local*.
class ThreadPool {
 public:
  /// `body(thread, stop)` for each of `threads`, counted from 0. It is to return soon once `stop` is true:
  /// when another one has thrown, or the pool goes.
  using Body = std::function<void(std::size_t thread, const std::atomic<bool>& stop)>;

  ThreadPool(std::size_t threads, Body body);
  /// Tells all to stop and waits for them.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  void stop() noexcept { stop_ = true; }
  /// Waits so long; whether all have returned.
  bool wait_for(std::chrono::milliseconds time);
  /// Waits until all have returned, and throws as rethrow().
  void wait();
  /// Throws what the first that failed has thrown.
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

/// Calls `work` with ranges of at most `length` numbers that cover those below `count`, from `threads`
/// threads this one among them. Ranges are handed out in order. Throws what the first range threw that threw,
/// when all threads have ended; every range before it has been worked on, and none is begun after it.
void parallel_for(std::size_t count, std::size_t length, std::size_t threads,
                  const std::function<void(std::size_t begin, std::size_t end)>& work);

}  // namespace lockstep
