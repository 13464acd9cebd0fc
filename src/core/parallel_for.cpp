#include "core/parallel_for.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "core/runtime/crash_handler.hpp"

namespace lockstep {

ThreadPool::ThreadPool(std::size_t threads, Body body) : body_(std::move(body)), running_(threads) {
  for (std::size_t thread = 0; thread < threads; ++thread)
    threads_.emplace_back([this, thread] { run(thread); });
}

ThreadPool::~ThreadPool() {
  stop();
  join();
}

bool ThreadPool::wait_for(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return ended_.wait_for(lock, time, [&] { return running_ == 0; });
}

void ThreadPool::wait() {
  join();
  rethrow();
}

void ThreadPool::join() {
  for (auto& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void ThreadPool::rethrow() {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

void ThreadPool::run(std::size_t thread) {
  use_crash_stack();
  try {
    body_(thread, stop_);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
    stop_ = true;
  }
  const std::lock_guard lock(mutex_);
  --running_;
  ended_.notify_all();
}

void parallel_for(std::size_t count, std::size_t length, std::size_t threads,
                  const std::function<void(std::size_t begin, std::size_t end)>& work) {
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::map<std::size_t, std::exception_ptr> failures;
  // Ranges are handed out in order, so every range before a failed one is done or in progress.
  const auto run = [&] {
    while (!failed) {
      const auto begin = next.fetch_add(length);
      if (begin >= count) return;
      try {
        work(begin, std::min(begin + length, count));
      } catch (...) {
        const std::lock_guard lock(mutex);
        failures.emplace(begin, std::current_exception());
        failed = true;
      }
    }
  };
  {
    ThreadPool others(std::max<std::size_t>(threads, 1) - 1, [&](std::size_t, const auto&) { run(); });
    run();
  }
  if (!failures.empty()) std::rethrow_exception(failures.begin()->second);
}

}  // namespace lockstep
