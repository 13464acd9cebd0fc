#pragma once

#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "lockstep/comm/store.hpp"

namespace lockstep::comm {

/// The NCCL communicators of a group and of all parts made of it, which end together, when the last of these
/// groups goes. Left to itself, c10d would abort each: what is still queued on the device would be lost, and
/// other ranks would hang. Ranks must also end them in one order, which they do not if each goes with its
/// group.
class NcclCommunicators {
 public:
  using Backend = c10::intrusive_ptr<c10d::Backend>;

  struct End {
    /// The beginning of messages: "rank 1 of 4".
    std::string who;
    /// Returns when all that is queued on the device has run.
    std::function<void()> synchronize;
    /// Returns when all ranks have come here; throws when one cannot, or when time is up.
    std::function<void()> meet;
  };

  /// `store`: where c10d keeps what concerns all of them.
  explicit NcclCommunicators(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}
  NcclCommunicators(const NcclCommunicators&) = delete;
  NcclCommunicators& operator=(const NcclCommunicators&) = delete;

  /// Shuts them down, the youngest first, once all ranks have come and nothing is queued any more, and
  /// returns when all ranks have done so: the host of the store may go then. Where that fails, and while an
  /// exception ends this rank, they are aborted. *Collective*.
  ~NcclCommunicators();

  const c10::intrusive_ptr<c10d::Store>& store() const noexcept { return store_; }

  /// How they end; until it is known they are aborted.
  void set_end(End end) { end_ = std::move(end); }

  /// In the order in which they are made.
  void add(Backend backend) { backends_.push_back(std::move(backend)); }

  /// Ends one at once: kernels that wait for other ranks let go. *Local*.
  void abort(const Backend& backend) noexcept;

 private:
  void abort_all() noexcept;

  c10::intrusive_ptr<c10d::Store> store_;
  End end_;
  std::vector<Backend> backends_;
};

/// `store` as one whose keys all lie under its prefix. c10d unwraps a PrefixStore for what concerns all of a
/// job, such as its signal to dump and end ("exception_dump"): in the store of an agent that restarts the job
/// that key would stay, and end the next attempt as soon as it begins.
c10::intrusive_ptr<c10d::Store> rooted(const Store& store);

}  // namespace lockstep::comm
