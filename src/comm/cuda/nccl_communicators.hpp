#pragma once

#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "lockstep/comm/store.hpp"

namespace lockstep::comm {

/// The NCCL communicators of a group and of all its subgroups. They end together when the last of these
/// groups is destroyed. Otherwise c10d would abort each one: work queued on the device would be lost, and
/// other ranks would hang. Ranks must also end them in the same order, which is not ensured if each ends with
/// its group.
class NcclCommunicators {
 public:
  using Backend = c10::intrusive_ptr<c10d::Backend>;

  struct End {
    /// Prefix of messages: "rank 1 of 4".
    std::string who;
    /// Returns when all work queued on the device has finished.
    std::function<void()> synchronize;
    /// Returns when all ranks have arrived; throws if one cannot, or on timeout.
    std::function<void()> meet;
  };

  /// `store`: for the keys that c10d shares among all of them.
  explicit NcclCommunicators(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}
  NcclCommunicators(const NcclCommunicators&) = delete;
  NcclCommunicators& operator=(const NcclCommunicators&) = delete;

  /// When all ranks have arrived and nothing is queued on the device, shuts the communicators down, the
  /// newest first. Returns when all ranks have done so; the process that hosts the store may then end. If
  /// this fails, or while an exception ends this rank, they are aborted. *Collective*.
  ~NcclCommunicators();

  const c10::intrusive_ptr<c10d::Store>& store() const noexcept { return store_; }

  /// How they end; aborted if it is not set.
  void set_end(End end) { end_ = std::move(end); }

  /// Must be called in the order of their creation.
  void add(Backend backend) { backends_.push_back(std::move(backend)); }

  /// Aborts one immediately, which ends kernels that wait for other ranks. *Local*.
  void abort(const Backend& backend) noexcept;

 private:
  void abort_all() noexcept;

  c10::intrusive_ptr<c10d::Store> store_;
  End end_;
  std::vector<Backend> backends_;
};

/// A view of `store` in which all keys have its prefix. c10d unwraps a PrefixStore for keys that concern the
/// whole job, such as the signal to dump and exit ("exception_dump"). In the store of an agent that restarts
/// the job, such a key would remain and end the next attempt as soon as it starts.
c10::intrusive_ptr<c10d::Store> rooted(const Store& store);

}  // namespace lockstep::comm
