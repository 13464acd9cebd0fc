#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace lockstep::comm {

/// While one lives, its thread waits for each operation as soon as it has added it, and so runs it itself:
/// waking the worker and being woken by it would cost more than many an operation. They nest. *Local*.
class CallerWaits {
 public:
  /// `waits`: false within such a scope, where other code runs that may not wait.
  explicit CallerWaits(bool waits = true) noexcept : before_(std::exchange(flag(), waits)) {}
  ~CallerWaits() { flag() = before_; }
  CallerWaits(const CallerWaits&) = delete;
  CallerWaits& operator=(const CallerWaits&) = delete;

  static bool now() noexcept { return flag(); }

 private:
  static bool& flag() noexcept {
    thread_local bool waits = false;
    return waits;
  }

  bool before_;
};

/// Operations of one group, run one at a time in the order in which they were queued: by the thread that
/// waits for one of them, or by a worker. Handing an operation to another thread costs more than a small
/// operation itself, so that the worker is woken for what is worth it, and comes by itself to what nobody
/// waits for. Any thread may call any method.
class OperationQueue {
 public:
  /// An operation and how it went.
  class Entry {
   public:
    explicit Entry(std::function<void()> body) : body_(std::move(body)) {}

   private:
    friend class OperationQueue;
    std::function<void()> body_;
    std::exception_ptr failure_;
    std::function<void(std::exception_ptr)> then_;
    bool done_ = false;
  };
  using Handle = std::shared_ptr<Entry>;

  /// `cpu`: where the worker runs; -1: anywhere.
  explicit OperationQueue(int cpu = -1) : cpu_(cpu) {}
  ~OperationQueue() { close(); }
  OperationQueue(const OperationQueue&) = delete;
  OperationQueue& operator=(const OperationQueue&) = delete;

  /// Runs what is still queued, and ends the worker. Nothing may be added afterwards.
  void close();

  /// `urgent`: the worker takes it at once, unless a thread that waits is faster, or the caller does
  /// (CallerWaits).
  Handle add(std::function<void()> body, bool urgent);

  /// Runs an operation in this thread, after those before it, and throws what it throws.
  void run(const std::function<void()>& body);

  /// Returns when the operation has ended, and throws what it threw.
  void wait(const Handle& entry);

  bool is_done(const Handle& entry);
  std::exception_ptr failure_of(const Handle& entry);

  /// Calls `then` in the thread that runs the operation, when it has ended; at once when it has already. At
  /// most once for each operation. The worker no longer waits for somebody to wait.
  void when_done(const Handle& entry, std::function<void(std::exception_ptr)> then);

 private:
  using Lock = std::unique_lock<std::mutex>;

  void run_next(Lock& lock);
  void leave_to_others();
  void work();
  bool has_work_for_worker() const { return !entries_.empty() && !running_ && (urgent_ || overdue_); }
  void await_work(Lock& lock);

  const int cpu_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::condition_variable for_worker_;
  std::deque<Handle> entries_;
  bool running_ = false;
  bool urgent_ = false;   // The worker shall empty the queue.
  bool overdue_ = false;  // The front has waited through a whole tick.
  bool dozing_ = false;   // The worker sleeps until it is woken; else it looks again within a tick.
  bool stopping_ = false;
  std::chrono::steady_clock::time_point last_added_{};
  std::thread worker_;
};

}  // namespace lockstep::comm
