#include "encode_batch.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/core/error.hpp"

namespace lockstep::tokenizer {
namespace {

/// Texts handed to a thread at a time: enough not to be felt, few enough for all threads to end together.
constexpr std::size_t kRange = 16;

class Ranges {
 public:
  using Work = std::function<void(std::size_t, std::size_t)>;
  Ranges(std::size_t count, const Work& work) : count_(count), work_(work) {}

  /// Takes ranges until there are none or one has failed. They are handed out in order, so that all before a
  /// failed one are done or under way.
  void run() {
    while (!failed_) {
      const auto begin = next_.fetch_add(kRange);
      if (begin >= count_) return;
      try {
        work_(begin, std::min(begin + kRange, count_));
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
  const Work& work_;
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::map<std::size_t, std::exception_ptr> failures_;
};

std::size_t threads_for(std::size_t count, int threads) {
  const auto wanted = threads > 0 ? static_cast<std::size_t>(threads)
                                  : std::max<std::size_t>(1, std::thread::hardware_concurrency());
  return std::min(wanted, (count + kRange - 1) / kRange);
}

}  // namespace

void for_each_range(std::size_t count, int threads, const Ranges::Work& work) {
  if (threads < 0) {
    throw UsageError("EncodeOptions::threads must be 0 or more, not " + std::to_string(threads) + ".");
  }
  Ranges ranges(count, work);
  {
    std::vector<std::jthread> others;
    for (std::size_t number = 1; number < threads_for(count, threads); ++number) {
      others.emplace_back([&ranges] { ranges.run(); });
    }
    ranges.run();
  }
  ranges.rethrow();
}

void at_input(std::size_t number, const std::function<void()>& work) {
  const auto place = [number] { return "input " + std::to_string(number) + " of the batch (from 0): "; };
  try {
    work();
  } catch (const DataError& error) {
    throw DataError(place() + error.what());
  } catch (const UsageError& error) {
    throw UsageError(place() + error.what());
  }
}

}  // namespace lockstep::tokenizer
