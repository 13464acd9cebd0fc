#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

class ProcessGroup;
struct World;

/// Keys shared by the ranks of a job, through which they coordinate work. For internal use: programs call
/// distributed_context(). Implementations are thread-safe, do not block, and throw CommunicationError if the
/// other ranks cannot be reached. All members except next_session() are *Local*.
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;

  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Sets the value if the key is not set, and returns the value that it then has. Atomic.
  virtual std::string set_if_absent(const std::string& key, const std::string& value) = 0;
  virtual bool contains(const std::string& key) = 0;
  /// The value of an existing key.
  virtual std::string get(const std::string& key) = 0;
  /// Adds to a number that starts at 0, and returns the sum. Atomic.
  virtual std::int64_t add(const std::string& key, std::int64_t amount) = 0;

  /// How often this rank has coordinated over this store before; all ranks do so in the same order.
  /// *Collective*.
  virtual std::uint64_t next_session() noexcept { return meetings_++; }

 private:
  std::atomic<std::uint64_t> meetings_{0};
};

/// The ranks that share work, and this rank. By default only this process.
struct DistributedContext {
  int rank = 0;
  int size = 1;
  /// The rank within its node, and the number of the node. Local rank 0 acts for the node.
  int local_rank = 0;
  int node = 0;
  /// LibTorch's name for this rank's device: "cpu", "cuda:1".
  std::string device = "cpu";
  /// Null for a single rank.
  std::shared_ptr<KeyValueStore> store = nullptr;

  bool alone() const noexcept { return size == 1; }
};

/// A store within this process for ranks that are threads: one per rank of `count`.
std::vector<std::shared_ptr<KeyValueStore>> in_process_stores(int count);

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
