#include "comm/backend/operation_queue.hpp"

#include <utility>

#include "core/cpu_set.hpp"
#include "core/runtime/signal_free_thread.hpp"

namespace lockstep::comm {
namespace {

constexpr std::chrono::milliseconds kTick{2};     // Longest time in the queue without a waiting thread.
constexpr std::chrono::milliseconds kAwake{200};  // Workers doze if no operation was added for this long.

}  // namespace

struct OperationQueue::Entry {
  std::function<void()> body;
  bool overlaps;
  std::exception_ptr failure = nullptr;
  std::function<void(std::exception_ptr)> then = nullptr;
  bool taken = false;
  bool done = false;
};

void OperationQueue::close() {
  {
    const Lock lock(mutex_);
    stopping_ = true;
    urgent_ = true;
    for_worker_.notify_all();
  }
  for (auto& worker : workers_) worker.join();
  workers_.clear();
}

/// Requires the lock.
void OperationQueue::start_worker() {
  workers_.push_back(signal_free_thread([this] { work(); }));
}

/// Requires the lock. Called when a queued operation is needed. Workers whose operations only wait cannot run
/// it, and may be waiting for just that operation: a send that answers a recv, for example.
void OperationQueue::call_worker() {
  const bool more = workers_.size() < static_cast<std::size_t>(most_workers_);
  if (all_workers_run() && more && !turn_taken_ && !stopping_) {
    start_worker();
  } else {
    for_worker_.notify_one();
  }
}

OperationQueue::Handle OperationQueue::add(std::function<void()> body, bool urgent, bool overlaps) {
  auto entry = std::make_shared<Entry>(Entry{std::move(body), overlaps});
  const Lock lock(mutex_);
  if (workers_.empty()) start_worker();
  entries_.push_back(entry);
  if (CallerWaits::now()) return entry;
  last_added_ = std::chrono::steady_clock::now();
  urgent_ = urgent_ || urgent;
  if (urgent || dozing_ > 0 || all_workers_run()) call_worker();
  return entry;
}

/// Requires the lock. Lets the next operation begin.
void OperationQueue::end(Turn& turn) {
  if (std::exchange(turn.ended, true)) return;
  turn_taken_ = false;
  if (entries_.empty()) urgent_ = stopping_;
  if (has_work_for_worker()) for_worker_.notify_one();
}

void OperationQueue::let_next_begin() {
  Turn* const turn = turn_of_thread();
  if (turn == nullptr || !turn->may_end_early) return;
  OperationQueue& queue = *turn->queue;
  const Lock lock(queue.mutex_);
  queue.end(*turn);
  if (queue.entries_.empty()) return;
  // A thread that waits for a queued operation may begin it, otherwise a worker does.
  queue.ended_.notify_all();
  queue.call_worker();
}

/// Requires the lock; releases it while the body runs. Returns the body's exception, if any.
std::exception_ptr OperationQueue::perform(std::function<void()> body, bool overlaps, Lock& lock) {
  turn_taken_ = true;
  ++running_;
  lock.unlock();
  Turn turn{this, overlaps && most_workers_ > 1};
  const CallerWaits not_in_it(false);
  Turn* const outer = std::exchange(turn_of_thread(), &turn);
  std::exception_ptr failure;
  try {
    body();
  } catch (...) {
    failure = std::current_exception();
  }
  turn_of_thread() = outer;
  body = nullptr;  // Destroys tensors without holding the lock.
  lock.lock();
  --running_;
  end(turn);
  ended_.notify_all();
  if (stopping_) for_worker_.notify_all();
  return failure;
}

void OperationQueue::run(const std::function<void()>& body) {
  Lock lock(mutex_);
  if (turn_taken_ || !entries_.empty()) {
    lock.unlock();
    const CallerWaits waits;
    return wait(add(body, false));
  }
  if (const auto failure = perform(std::cref(body), true, lock)) std::rethrow_exception(failure);
}

void OperationQueue::run_next(Lock& lock) {
  const Handle entry = std::move(entries_.front());
  entries_.pop_front();
  entry->taken = true;
  overdue_ = false;
  entry->failure = perform(std::move(entry->body), entry->overlaps, lock);
  entry->done = true;
  if (!entry->then) return;
  lock.unlock();
  {
    const CallerWaits not_in_it(false);
    entry->then(entry->failure);
  }
  lock.lock();
}

void OperationQueue::wait(const Handle& entry) {
  Lock lock(mutex_);
  while (!entry->done) {
    if (entry->taken || turn_taken_) {
      if (!turn_taken_ && !entries_.empty()) {
        urgent_ = true;
        call_worker();
      }
      ended_.wait(lock);
    } else {
      run_next(lock);
    }
  }
  if (entry->failure) std::rethrow_exception(entry->failure);
}

bool OperationQueue::is_done(const Handle& entry) {
  const Lock lock(mutex_);
  return entry->done;
}

std::exception_ptr OperationQueue::failure_of(const Handle& entry) {
  const Lock lock(mutex_);
  return entry->failure;
}

void OperationQueue::when_done(const Handle& entry, std::function<void(std::exception_ptr)> then) {
  Lock lock(mutex_);
  if (!entry->done) {
    entry->then = std::move(then);
    urgent_ = true;
    call_worker();
    return;
  }
  lock.unlock();
  then(entry->failure);
}

/// Returns when there may be work.
void OperationQueue::await_work(Lock& lock) {
  if (entries_.empty() && std::chrono::steady_clock::now() - last_added_ > kAwake) {
    ++dozing_;
    for_worker_.wait(lock);
    --dozing_;
    return;
  }
  const Entry* const front = entries_.empty() ? nullptr : entries_.front().get();
  if (for_worker_.wait_for(lock, kTick) == std::cv_status::no_timeout) return;
  overdue_ = front != nullptr && !entries_.empty() && entries_.front().get() == front;
}

void OperationQueue::work() {
  if (cpu_ >= 0) bind_thread_to({cpu_});
  Lock lock(mutex_);
  while (!stopping_ || !entries_.empty() || running_ > 0) {
    if (has_work_for_worker()) {
      ++running_workers_;
      run_next(lock);
      --running_workers_;
    } else {
      await_work(lock);
    }
  }
}

}  // namespace lockstep::comm
