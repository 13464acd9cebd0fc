#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/datasets/distributed_context.hpp"

namespace lockstep {

/// One of those that share the work of a map: a thread, in this process or in another rank of the job. It has
/// the same numbers and the same device from its beginning to its end, whatever part of the data it works on.
struct Worker {
  /// From 0; never `count` or above, and 0 where there is one worker.
  int rank = 0;
  /// All workers of all ranks.
  int count = 1;
  /// What setup should put its model on: torch::Device(worker.device).
  std::string device = "cpu";
  /// Its process in the job.
  int process = 0;
};

/// The workers that this process runs: `threads` of them, numbered through over the ranks of the job. The
/// devices are dealt out in turn; without any, all have their rank's.
std::vector<Worker> make_workers(const DistributedContext& ranks, int threads,
                                 const std::vector<std::string>& devices);

}  // namespace lockstep
