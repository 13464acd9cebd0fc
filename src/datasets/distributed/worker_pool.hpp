#pragma once

#include <atomic>
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

  /// Whether all have returned.
  bool done() const noexcept { return running_.load() == 0; }
  /// Waits until all have returned, and throws as rethrow().
  void wait();
  /// Throws what the first that failed has thrown.
  void rethrow();

 private:
  void join();
  void run(const Worker& worker);

  Body body_;
  std::atomic<bool> stop_{false};
  std::atomic<int> running_;
  std::mutex mutex_;
  std::exception_ptr failure_;
  std::vector<std::thread> threads_;
};

}  // namespace lockstep
