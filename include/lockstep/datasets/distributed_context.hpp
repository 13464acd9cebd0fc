#pragma once

#include <memory>
#include <string>
#include <vector>

namespace lockstep {

class KeyValueStore;
class ProcessGroup;
struct World;

/// The ranks that share work, and this rank. By default only this process; so for one that replaces another.
struct DistributedContext {
  int rank = 0;
  int size = 1;
  /// The rank within its node, and the number of the node. Local rank 0 acts for the node.
  int local_rank = 0;
  int node = 0;
  /// LibTorch's name for this rank's device: "cpu", "cuda:1".
  std::string device = "cpu";
  /// What the ranks coordinate through; null for a single rank.
  std::shared_ptr<KeyValueStore> store = nullptr;

  bool alone() const noexcept { return size == 1; }
};

/// The ranks of a group, through a separate connection to its store. *Collective*. Throws CommunicationError.
DistributedContext distributed_context(const World& world, const ProcessGroup& group);

/// The ranks of a job that was started by `lockstep run` or torchrun, through the launcher's store: for
/// programs without a process group. Several calls return the same shared store, in which the ranks
/// coordinate in the same order. *Local*. Throws UsageError if no launcher hosts the store,
/// CommunicationError if it cannot be reached.
DistributedContext distributed_context(const World& world);

/// One worker of a map: a thread in this process or in another rank of the job. Its numbers and its device
/// stay the same for its lifetime, whatever part of the data it works on.
struct Worker {
  /// From 0, always less than `count`; 0 for a single worker.
  int rank = 0;
  /// Number of workers of all ranks.
  int count = 1;
  /// The device for setup's model: torch::Device(worker.device).
  std::string device = "cpu";
  /// The rank of its process in the job.
  int process = 0;
};

/// The workers of this process: `threads` of them, numbered consecutively over the ranks of the job. The
/// devices are assigned in turn; without any, all workers have their rank's device.
std::vector<Worker> make_workers(const DistributedContext& ranks, int threads,
                                 const std::vector<std::string>& devices);

}  // namespace lockstep
