#include "lockstep/datasets/workers.hpp"

namespace lockstep {

std::vector<Worker> make_workers(const DistributedContext& ranks, int threads,
                                 const std::vector<std::string>& devices) {
  std::vector<Worker> workers;
  for (int thread = 0; thread < threads; ++thread) {
    const auto turn = static_cast<std::size_t>(thread);
    workers.push_back({.rank = ranks.rank * threads + thread,
                       .count = ranks.size * threads,
                       .device = devices.empty() ? ranks.device : devices[turn % devices.size()],
                       .process = ranks.rank});
  }
  return workers;
}

}  // namespace lockstep
