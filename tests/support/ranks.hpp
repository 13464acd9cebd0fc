#pragma once

#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "lockstep/comm/process_group.hpp"

namespace lockstep::testing {

/// Runs `body(rank)` in one thread for each rank, joins them all, and throws the first failure again.
inline void run_ranks(int size, const std::function<void(int rank)>& body) {
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

/// The same with a process group over a store in memory. Timeouts are short: no test may hang.
inline void run_group(int size, const std::function<void(ProcessGroup group)>& body,
                      std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  const Store store = Store::in_memory();
  run_ranks(size, [&](int rank) { body(ProcessGroup(rank, size, store, {.timeout = timeout})); });
}

}  // namespace lockstep::testing
