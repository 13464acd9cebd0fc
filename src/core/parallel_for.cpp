#include "core/parallel_for.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "core/runtime/crash_handler.hpp"

namespace lockstep {
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
    std::vector<std::jthread> others;
    for (std::size_t number = 1; number < threads; ++number) {
      others.emplace_back([&ranges] {
        use_crash_stack();
        ranges.run();
      });
    }
    ranges.run();
  }
  ranges.rethrow();
}

}  // namespace lockstep
