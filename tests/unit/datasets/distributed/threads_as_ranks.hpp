#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "coordination/memory_store.hpp"
#include "lockstep/datasets/distributed_context.hpp"

namespace lockstep::testing {

/// Runs `body(ranks)` in a thread for each rank; what each has thrown, or "".
inline std::vector<std::string> run_job(int size, const std::function<void(const DistributedContext&)>& body,
                                        int ranks_per_node = 2) {
  const auto stores = in_process_stores(size);
  std::vector<std::string> outcomes(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto place = static_cast<std::size_t>(rank);
      try {
        body({.rank = rank,
              .size = size,
              .local_rank = rank % ranks_per_node,
              .node = rank / ranks_per_node,
              .store = stores[place]});
      } catch (const std::exception& error) {
        outcomes[place] = error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return outcomes;
}

}  // namespace lockstep::testing
