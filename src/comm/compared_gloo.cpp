#include "compared_gloo.hpp"

#include <utility>

#include "net/signal_free_thread.hpp"

namespace lockstep::comm {
namespace {

/// Opens what c10d keeps for its backends.
struct Ending : c10d::Work {
  using Work::finish;
};

/// An operation ends before it has run.
void fail(c10d::ProcessGroupGloo::AsyncWork& operation, const std::exception_ptr& reason) {
  operation.getFuture()->setError(reason);
  (operation.*&Ending::finish)(reason);
}

/// So that c10d's own do not start what has not been agreed on.
c10::intrusive_ptr<c10d::ProcessGroupGloo::Options> without_threads(
    c10::intrusive_ptr<c10d::ProcessGroupGloo::Options> options) {
  options->threads = 0;
  return options;
}

}  // namespace

ComparedGloo::ComparedGloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                           c10::intrusive_ptr<Options> options, CallExchange::Names names)
    : GuardedGloo(store, rank, size, without_threads(options)),
      exchange_(std::make_unique<CallExchange>(*this, std::move(names))) {
  constexpr std::size_t kWorkers = 2;  // As many as c10d's.
  workInProgress_.resize(kWorkers);
  for (std::size_t i = 0; i < kWorkers; ++i)
    workers_.push_back(net::signal_free_thread([this, i] { work(i); }));
}

ComparedGloo::~ComparedGloo() {
  {
    const std::lock_guard lock(workMutex_);
    stopping_ = true;
  }
  for_workers_.notify_all();
  for (auto& worker : workers_) worker.join();
}

/// What was queued may be taken now; a message was not. Some collectives are made of several operations, of
/// which the first stands for all. A worker that agrees on another one wakes the next when it is through.
void ComparedGloo::started() {
  {
    const std::lock_guard lock(workMutex_);
    if (calls_.size() == workQueue_.size()) return;
    while (calls_.size() < workQueue_.size()) calls_.push_back(std::exchange(next_call_, {}));
    if (agreeing_) return;
  }
  for_workers_.notify_one();
}

ComparedGloo::Queued ComparedGloo::next(std::size_t worker) {
  std::unique_lock lock(workMutex_);
  workInProgress_[worker].reset();
  for_workers_.wait(lock, [&] { return !agreeing_ && (stopping_ || !calls_.empty()); });
  if (calls_.empty()) return {};
  Queued queued{std::move(workQueue_.front()), std::move(calls_.front())};
  workQueue_.pop_front();
  calls_.pop_front();
  workInProgress_[worker] = queued.operation;
  agreeing_ = true;
  return queued;
}

void ComparedGloo::let_next_be_taken() {
  const std::lock_guard lock(workMutex_);
  agreeing_ = false;
  if (stopping_ || !calls_.empty()) for_workers_.notify_all();
}

std::exception_ptr ComparedGloo::agree(const Queued& queued) {
  if (queued.call.empty()) return nullptr;
  const auto timeout = queued.operation->getTimeout();
  try {
    exchange_->announce(queued.call, timeout);
    exchange_->agree(timeout);
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

void ComparedGloo::work(std::size_t worker) {
  for (;;) {
    const Queued queued = next(worker);
    if (!queued.operation) return;
    const std::exception_ptr failure = agree(queued);
    let_next_be_taken();
    if (failure) {
      fail(*queued.operation, failure);
    } else {
      AsyncWork::execute(queued.operation);
    }
  }
}

}  // namespace lockstep::comm
