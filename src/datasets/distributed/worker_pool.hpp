#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "lockstep/datasets/distributed_context.hpp"

namespace lockstep {

/// A thread for each worker. When one throws, the others are told to stop.
class WorkerPool {
 public:
  /// `body(worker, stop)` is to return soon once `stop` is true.
  using Body = std::function<void(const Worker& worker, const std::atomic<bool>& stop)>;

  WorkerPool(const std::vector<Worker>& workers, Body body);
  /// Tells all to stop and waits for them.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  /// Waits so long; whether all have returned.
  bool wait_for(std::chrono::milliseconds time);
  /// Waits until all have returned, and throws as rethrow().
  void wait();
  /// Throws what the first that failed has thrown.
  void rethrow();

 private:
  void join();
  void run(const Worker& worker);

  Body body_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable ended_;
  std::size_t running_;
  std::exception_ptr failure_;
  std::vector<std::thread> threads_;
};

}  // namespace lockstep
