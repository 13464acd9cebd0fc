#include "worker_pool.hpp"

#include "core/runtime/crash_handler.hpp"

namespace lockstep {

WorkerPool::WorkerPool(const std::vector<Worker>& workers, Body body)
    : body_(std::move(body)), running_(static_cast<int>(workers.size())) {
  for (const auto& worker : workers) threads_.emplace_back([this, worker] { run(worker); });
}

WorkerPool::~WorkerPool() {
  stop_ = true;
  join();
}

void WorkerPool::wait() {
  join();
  rethrow();
}

void WorkerPool::join() {
  for (auto& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void WorkerPool::rethrow() {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

void WorkerPool::run(const Worker& worker) {
  use_crash_stack();
  try {
    body_(worker, stop_);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
    stop_ = true;
  }
  --running_;
}

}  // namespace lockstep
