#include "data/prefetcher.hpp"

#include <ATen/Parallel.h>
#include <fmt/core.h>
#include <pthread.h>

#include <string>
#include <utility>

#include "core/runtime/crash_handler.hpp"
#include "lockstep/core/error.hpp"

// From LibTorch's OpenMP runtime; null if LibTorch was built without OpenMP.
extern "C" void omp_set_num_threads(int threads) __attribute__((weak));

namespace lockstep {

void prepare_worker_thread() {
  use_crash_stack();
  pthread_setname_np(pthread_self(), "lockstep-data");
  // LibTorch sets a thread's number of threads at its first parallel call. Making that call first prevents it
  // from overwriting ours. at::set_num_threads would change the number for the whole process.
  at::internal::lazy_init_num_threads();
  at::get_num_threads();
  if (omp_set_num_threads != nullptr) omp_set_num_threads(1);
}

namespace {

void run_init(const Prefetcher::Init& init, int worker) {
  if (!init) return;
  try {
    init(worker);
  } catch (const std::exception& error) {
    std::throw_with_nested(
        DataError(fmt::format("worker_init of loader worker {} failed: {}", worker, error.what())));
  }
}

}  // namespace

Prefetcher::Prefetcher(int workers, std::int64_t depth, Init init) : depth_(depth), init_(std::move(init)) {
  slots_.resize(static_cast<std::size_t>(depth_));
  try {
    for (int worker = 0; worker < workers; ++worker) threads_.emplace_back([this, worker] { work(worker); });
  } catch (...) {
    // The destructor does not run if the constructor throws, and a joinable thread must not be destroyed.
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

void Prefetcher::start(Read read, std::int64_t count) {
  {
    const std::lock_guard lock(mutex_);
    read_ = std::move(read);
    count_ = count;
    claimed_ = delivered_ = 0;
  }
  room_.notify_all();
}

void Prefetcher::drop() noexcept {
  std::unique_lock lock(mutex_);
  count_ = claimed_ = delivered_ = 0;
  filled_.wait(lock, [this] { return reading_ == 0; });
  for (auto& slot : slots_) slot = {};
  read_ = nullptr;
}

std::optional<PrefetchedBatch> Prefetcher::next() {
  std::unique_lock lock(mutex_);
  if (delivered_ == count_) return std::nullopt;
  auto& slot = slot_of(delivered_);
  filled_.wait(lock, [&] { return slot.ready || unprepared_; });
  if (unprepared_) std::rethrow_exception(unprepared_);
  Slot taken = std::exchange(slot, Slot{});
  ++delivered_;
  lock.unlock();
  room_.notify_one();
  if (taken.failure) std::rethrow_exception(taken.failure);
  return std::move(taken.batch);
}

void Prefetcher::work(int worker) {
  prepare_worker_thread();
  if (!prepared(worker)) return;
  while (const auto number = claim()) fill(*number);
}

bool Prefetcher::prepared(int worker) {
  try {
    run_init(init_, worker);
    return true;
  } catch (...) {
    const std::lock_guard lock(mutex_);
    unprepared_ = std::current_exception();
  }
  filled_.notify_all();
  return false;
}

std::optional<std::int64_t> Prefetcher::claim() {
  std::unique_lock lock(mutex_);
  room_.wait(lock, [this] { return stopping_ || has_room(); });
  if (stopping_) return std::nullopt;
  ++reading_;
  const auto number = claimed_++;
  // A waiting worker may have missed its notification, because this thread was notified but did not need it.
  const bool more = has_room();
  lock.unlock();
  if (more) room_.notify_one();
  return number;
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
    --reading_;
  }
  filled_.notify_one();
}

}  // namespace lockstep
