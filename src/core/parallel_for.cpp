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

namespace {

class Ranges {
 public:
  using Work = std::function<void(std::size_t, std::size_t)>;
  Ranges(std::size_t count, std::size_t length, const Work& work)
      : count_(count), length_(length), work_(work) {}

  /// Takes ranges until there are none or one has failed. They are handed out in order, so that all before a
  /// failed one are done or under way.
  void run() {
    while (!failed_) {
      const auto begin = next_.fetch_add(length_);
      if (begin >= count_) return;
      try {
        work_(begin, std::min(begin + length_, count_));
      } catch (...) {
        const std::lock_guard lock(mutex_);
        failures_.emplace(begin, std::current_exception());
        failed_ = true;
      }
    }
  }

  void rethrow() const {
    if (!failures_.empty()) std::rethrow_exception(failures_.begin()->second);
  }

 private:
  std::size_t count_;
  std::size_t length_;
  const Work& work_;
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::map<std::size_t, std::exception_ptr> failures_;
};

}  // namespace

void parallel_for(std::size_t count, std::size_t length, std::size_t threads, const Ranges::Work& work) {
  Ranges ranges(count, length, work);
  {
    ThreadPool others(std::max<std::size_t>(threads, 1) - 1, [&](std::size_t, const auto&) { ranges.run(); });
    ranges.run();
  }
  ranges.rethrow();
}

}  // namespace lockstep
