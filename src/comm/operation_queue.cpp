#include "operation_queue.hpp"

#include <utility>

#include "core/cpu_set.hpp"
#include "net/signal_free_thread.hpp"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTick{2};     // So long may an operation lie that nobody waits for.
constexpr std::chrono::milliseconds kAwake{200};  // The worker dozes when nothing was added for so long.

/// What it threw, if it did. What it adds itself, nobody waits for.
std::exception_ptr perform(const std::function<void()>& body) {
  const CallerWaits not_in_it(false);
  try {
    body();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace

void OperationQueue::close() {
  {
    const Lock lock(mutex_);
    stopping_ = true;
    urgent_ = true;
    for_worker_.notify_all();
  }
  if (worker_.joinable()) worker_.join();
}

OperationQueue::Handle OperationQueue::add(std::function<void()> body, bool urgent) {
  auto entry = std::make_shared<Entry>(std::move(body));
  const Lock lock(mutex_);
  if (!worker_.joinable()) worker_ = net::signal_free_thread([this] { work(); });
  entries_.push_back(entry);
  if (CallerWaits::now()) return entry;
  last_added_ = Clock::now();
  urgent_ = urgent_ || urgent;
  if (urgent || dozing_) for_worker_.notify_one();
  return entry;
}

/// With the lock, when an operation has ended.
void OperationQueue::leave_to_others() {
  running_ = false;
  if (entries_.empty()) urgent_ = stopping_;
  ended_.notify_all();
  if (has_work_for_worker()) for_worker_.notify_one();
}

void OperationQueue::run(const std::function<void()>& body) {
  Lock lock(mutex_);
  if (running_ || !entries_.empty()) {
    lock.unlock();
    const CallerWaits waits;
    return wait(add(body, false));
  }
  running_ = true;
  lock.unlock();
  const std::exception_ptr failure = perform(body);
  lock.lock();
  leave_to_others();
  if (failure) std::rethrow_exception(failure);
}

/// Takes the front out of the queue and runs it without the lock.
void OperationQueue::run_next(Lock& lock) {
  const Handle entry = std::move(entries_.front());
  entries_.pop_front();
  running_ = true;
  overdue_ = false;
  lock.unlock();
  const std::exception_ptr failure = perform(entry->body_);
  entry->body_ = nullptr;  // Tensors go while nobody is kept waiting for the lock.
  lock.lock();
  entry->done_ = true;
  entry->failure_ = failure;
  leave_to_others();
  if (!entry->then_) return;
  lock.unlock();
  {
    const CallerWaits not_in_it(false);
    entry->then_(failure);
  }
  lock.lock();
}

void OperationQueue::wait(const Handle& entry) {
  Lock lock(mutex_);
  while (!entry->done_) {
    if (running_) {
      ended_.wait(lock);
    } else {
      run_next(lock);
    }
  }
  if (entry->failure_) std::rethrow_exception(entry->failure_);
}

bool OperationQueue::is_done(const Handle& entry) {
  const Lock lock(mutex_);
  return entry->done_;
}

std::exception_ptr OperationQueue::failure_of(const Handle& entry) {
  const Lock lock(mutex_);
  return entry->failure_;
}

void OperationQueue::when_done(const Handle& entry, std::function<void(std::exception_ptr)> then) {
  Lock lock(mutex_);
  if (!entry->done_) {
    entry->then_ = std::move(then);
    urgent_ = true;
    for_worker_.notify_one();
    return;
  }
  lock.unlock();
  then(entry->failure_);
}

/// Returns when there may be something to do.
void OperationQueue::await_work(Lock& lock) {
  if (entries_.empty() && Clock::now() - last_added_ > kAwake) {
    dozing_ = true;
    for_worker_.wait(lock);
    dozing_ = false;
    return;
  }
  const Entry* const front = entries_.empty() ? nullptr : entries_.front().get();
  if (for_worker_.wait_for(lock, kTick) == std::cv_status::no_timeout) return;
  overdue_ = front != nullptr && !entries_.empty() && entries_.front().get() == front;
}

void OperationQueue::work() {
  if (cpu_ >= 0) bind_thread_to({cpu_});
  Lock lock(mutex_);
  while (!stopping_ || !entries_.empty() || running_) {
    if (has_work_for_worker()) {
      run_next(lock);
    } else {
      await_work(lock);
    }
  }
}

}  // namespace lockstep::comm
