#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/core/error.hpp"
#include "shm/group.hpp"

namespace lockstep::shm::testing {

/// A store for ranks that are threads.
class MemoryBootstrapStore final : public BootstrapStore {
 public:
  void post(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    notes_[key] = value;
    posted_.notify_all();
  }
  std::string read(const std::string& key, net::Deadline deadline) override {
    std::unique_lock lock(mutex_);
    if (posted_.wait_until(lock, deadline, [&] { return notes_.contains(key); })) return notes_[key];
    throw TimeoutError("nobody posted " + key);
  }

 private:
  std::mutex mutex_;
  std::condition_variable posted_;
  std::map<std::string, std::string> notes_;
};

inline GroupOptions options_for(int rank, int size) {
  GroupOptions options;
  options.members.rank = rank;
  options.members.names.resize(static_cast<std::size_t>(size));
  std::iota(options.members.names.begin(), options.members.names.end(), 0);
  options.members.who = "rank " + std::to_string(rank) + " of " + std::to_string(size);
  options.timeout = std::chrono::seconds(60);
  options.join_timeout = std::chrono::seconds(60);
  options.heap_bytes = 1U << 30;
  return options;
}

/// Runs `body(rank)` in one thread for each rank, joins them, and throws the first failure again.
inline void run_threads(int size, const std::function<void(int rank)>& body) {
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        failures[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

/// The same with a group. `change` may alter the options.
inline void run_group(int size, const std::function<void(Group& group)>& body,
                      const std::function<void(GroupOptions&)>& change = nullptr) {
  MemoryBootstrapStore store;
  run_threads(size, [&](int rank) {
    GroupOptions options = options_for(rank, size);
    if (change) change(options);
    const auto joined = Group::join(options, store);
    if (!joined.group) throw Error("the ranks do not share memory: " + joined.obstacle);
    body(*joined.group);
  });
}

}  // namespace lockstep::shm::testing
