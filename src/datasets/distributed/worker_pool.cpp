#include "worker_pool.hpp"

#include "core/runtime/crash_handler.hpp"
#include "lockstep/datasets/distributed_context.hpp"

namespace lockstep {

std::vector<Worker> make_workers(const DistributedContext& ranks, int threads,
                                 const std::vector<std::string>& devices) {
  std::vector<Worker> workers;
  for (int thread = 0; thread < threads; ++thread) {
    const auto turn = static_cast<std::size_t>(thread);
    workers.push_back({.rank = ranks.rank * threads + thread,
                       .count = ranks.size * threads,
                       .device = devices.empty() ? ranks.device : devices[turn % devices.size()],
                       .process = ranks.rank});
  }
  return workers;
}

WorkerPool::WorkerPool(const std::vector<Worker>& workers, Body body)
    : body_(std::move(body)), running_(workers.size()) {
  for (const auto& worker : workers) threads_.emplace_back([this, worker] { run(worker); });
}

WorkerPool::~WorkerPool() {
  stop_ = true;
  join();
}

bool WorkerPool::wait_for(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return ended_.wait_for(lock, time, [&] { return running_ == 0; });
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
  const std::lock_guard lock(mutex_);
  --running_;
  ended_.notify_all();
}

}  // namespace lockstep
