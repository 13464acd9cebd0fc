#include "prefetcher.hpp"

#include <algorithm>
#include <utility>

#include "worker_thread.hpp"

namespace lockstep {

Prefetcher::Prefetcher(Read read, std::int64_t count, int workers, std::int64_t depth)
    : read_(std::move(read)), count_(count), depth_(std::max<std::int64_t>(1, std::min(count, depth))) {
  slots_.resize(static_cast<std::size_t>(depth_));
  const auto wanted = std::min<std::int64_t>(workers, count);
  try {
    for (std::int64_t i = 0; i < wanted; ++i) threads_.emplace_back([this] { work(); });
  } catch (...) {
    // The destructor does not run for a half-built object, and a joinable thread must not be destroyed.
    stop();
    throw;
  }
}

void Prefetcher::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  room_.notify_all();
  for (auto& thread : threads_) thread.join();
  threads_.clear();
}

std::optional<Batch> Prefetcher::next() {
  std::unique_lock lock(mutex_);
  if (delivered_ == count_) return std::nullopt;
  auto& slot = slot_of(delivered_);
  filled_.wait(lock, [&slot] { return slot.ready; });
  Slot taken = std::exchange(slot, Slot{});
  ++delivered_;
  lock.unlock();
  room_.notify_one();
  if (taken.failure) std::rethrow_exception(taken.failure);
  return std::move(taken.batch);
}

void Prefetcher::work() {
  prepare_worker_thread();
  while (const auto number = claim()) fill(*number);
}

std::optional<std::int64_t> Prefetcher::claim() {
  std::unique_lock lock(mutex_);
  room_.wait(lock, [this] { return stopping_ || claimed_ == count_ || claimed_ < delivered_ + depth_; });
  if (stopping_ || claimed_ == count_) {
    lock.unlock();
    room_.notify_one();  // this thread may have taken the notification that another one waits for
    return std::nullopt;
  }
  return claimed_++;
}

void Prefetcher::fill(std::int64_t number) {
  Slot result;
  try {
    result.batch = read_(number);
  } catch (...) {
    result.failure = std::current_exception();
  }
  result.ready = true;
  {
    const std::lock_guard lock(mutex_);
    slot_of(number) = std::move(result);
  }
  filled_.notify_one();
}

}  // namespace lockstep
