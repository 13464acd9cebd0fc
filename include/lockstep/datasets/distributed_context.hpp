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

/// What the ranks of a job need to share work: a few keys that all see. The library's own use: programs take
/// distributed_context(). An implementation serves any thread, does not wait, and throws CommunicationError
/// when the others cannot be reached. All members but next_session() are *Local*.
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;

  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Sets it where nobody has, and returns what it then holds. Atomic.
  virtual std::string set_if_absent(const std::string& key, const std::string& value) = 0;
  virtual bool contains(const std::string& key) = 0;
  /// Of a key that is there.
  virtual std::string get(const std::string& key) = 0;
  /// Adds to a number that starts at 0, and returns the sum. Atomic.
  virtual std::int64_t add(const std::string& key, std::int64_t amount) = 0;

  /// How often this rank has met the others over this store before: all ranks meet in the same order.
  /// *Collective*.
  virtual std::uint64_t next_session() noexcept { return meetings_++; }

 private:
  std::atomic<std::uint64_t> meetings_{0};
};

/// The ranks that share a piece of work, and this one among them. By default this process alone.
struct DistributedContext {
  int rank = 0;
  int size = 1;
  /// The number of this rank on its node, and of its node: local rank 0 acts for the node.
  int local_rank = 0;
  int node = 0;
  /// How LibTorch names this rank's device: "cpu", "cuda:1".
  std::string device = "cpu";
  /// Null where there is one rank.
  std::shared_ptr<KeyValueStore> store = nullptr;

  bool alone() const noexcept { return size == 1; }
};

/// A store inside this process for ranks that are threads of it: one for each of `count` ranks.
std::vector<std::shared_ptr<KeyValueStore>> in_process_stores(int count);

/// The ranks of a group, over a connection of their own to its store. *Collective*. Throws
/// CommunicationError.
DistributedContext distributed_context(const World& world, const ProcessGroup& group);

/// The ranks of a job that `lockstep run` or torchrun has started, through the launcher's store: for programs
/// that have no process group. Stores of several calls are one and the same to the ranks, who meet in it in
/// the same order. *Local*. Throws UsageError where no launcher hosts the store, CommunicationError when it
/// cannot be reached.
DistributedContext distributed_context(const World& world);

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
