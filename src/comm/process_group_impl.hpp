#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>
#include <vector>

#include "comm/backend/cpu_backend.hpp"
#include "comm/cuda/nccl_communicators.hpp"
#include "comm/diagnostics/operation_tracker.hpp"
#include "comm/errors.hpp"
#include "comm/group_key_value_store.hpp"
#include "comm/group_observer.hpp"
#include "comm/join_group.hpp"
#include "comm/transport/provisional_transport.hpp"
#include "comm/work_description.hpp"
#include "comm/work_impl.hpp"
#include "coordination/barrier.hpp"
#include "lockstep/comm/process_group.hpp"

namespace lockstep {

/// What other ranks can see of this rank.
struct Connections {
  std::shared_ptr<comm::Diagnostics> diagnostics;  // Destroyed last: announces this rank's exit.
  Store origin;                                    // On rank 0 this may be the server; a clone is not.
  Store store;                                     // With the group's key prefix.
  coordination::Barrier barrier;
  std::shared_ptr<c10d::ProcessGroup> group;
  comm::CpuBackend* cpu = nullptr;  // The group's; null if it has no CPU backend.
  /// Shared with subgroups; null without NCCL.
  std::shared_ptr<comm::NcclCommunicators> nccl = nullptr;
};

/// What a subgroup takes from its parent for NCCL.
struct NcclParent {
  std::shared_ptr<comm::NcclCommunicators> communicators = nullptr;
  /// The communicator to split from; null: create a new one.
  c10::intrusive_ptr<c10d::Backend> backend = {};
  int color = 0;
  /// Returns when all ranks of the group are about to split and none has queued operations. A split waits
  /// without timeout for a missing rank and must not run concurrently with another operation of the group's
  /// communicator.
  std::function<void()> meet = nullptr;
};

struct ProcessGroup::Impl {
  /// An outermost group's subgroups, and those who hold on to its connections or theirs.
  struct Family {
    /// `group` is empty on ranks that are no members of it.
    struct Subgroup {
      std::weak_ptr<Impl> parent;
      std::vector<int> ranks;
      std::weak_ptr<Impl> group;
    };
    std::mutex mutex;
    std::vector<Subgroup> subgroups;  // In the order in which they were made, which is that of all ranks.
    std::vector<std::weak_ptr<comm::GroupObserver>> observers;
    std::atomic<bool> is_newcomer{false};  // See group_observer.hpp.
    /// While the groups of a newcomer have no connections yet.
    std::shared_ptr<const comm::LonelySetUp> set_up;
    bool is_reforming = false;
    std::string reform_abort;  // Why the generation that is being formed was aborted already.
  };

  /// `origin` is the program's store, `group_store` the same with this group's key prefix. A subgroup gets
  /// its parent's family and diagnostics; the outermost group creates them. `first_generation` above 1: the
  /// process replaces another one, and its groups are provisional until it is formed: reform().
  Impl(const GroupInfo& group_members, std::string group_path, const Store& origin, const Store& group_store,
       const ProcessGroupOptions& group_options, std::uint64_t first_generation = 1);
  Impl(const GroupInfo& group_members, std::string group_path, const Impl& parent, const Store& group_store,
       const NcclParent& nccl_parent);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// Connects the members under keys that nobody else uses. `known`: null for the outermost group.
  /// *Collective*.
  std::unique_ptr<Connections> connect(const Store& origin, const Store& group_store,
                                       std::shared_ptr<comm::Diagnostics> known, NcclParent nccl);
  /// The same for a newcomer in its set-up: nobody else has a part in it. *Local*.
  std::unique_ptr<Connections> provisional(const Store& origin,
                                           std::shared_ptr<comm::Diagnostics> known) const;
  /// Throws UsageError in a newcomer's set-up. `what`: the operation.
  void throw_if_provisional(const char* what) const {
    if (family->set_up) family->set_up->refuse(what);
  }
  /// The keys of a generation of the outermost group.
  Store store_of(std::uint64_t number) const;
  /// The subgroup of `group` with these ranks, which include this rank.
  static GroupInfo subgroup_of(const GroupInfo& group, const std::vector<int>& ranks);
  /// Agrees with the other ranks on the members of the next subgroup, the group's number `number` whose keys
  /// are in `group_store`; returns the subgroup's name. *Collective*. Throws CommunicationError if the ranks
  /// pass different lists.
  std::string agree_on_subgroup(const Store& group_store, std::int64_t number,
                                const std::vector<int>& ranks) const;
  /// See ProcessGroup. Any thread.
  void abort(const std::string& reason);
  bool is_aborted() const;
  /// Throws CommunicationError after abort(). `what`: the operation.
  void throw_if_aborted(const char* what) const;
  /// See ProcessGroup.
  void reform(std::uint64_t wanted);

  /// Creates the backend of the group's CPU tensors.
  c10::intrusive_ptr<comm::CpuBackend> make_cpu_backend(const Store& store,
                                                        std::shared_ptr<comm::Diagnostics> diagnostics) const;
  /// Starts an operation with `start(backend)`; `finish` runs after it has succeeded.
  template <class Start>
  Work launch(const char* name, const at::Tensor& tensor, const Start& start,
              std::function<void()> finish = nullptr);

  /// The backend for that tensor's device.
  c10d::Backend& backend_of(const at::Tensor& tensor) const;
  /// Throws UsageError unless `other` is a rank of this group. `role` names it in the message.
  void check_rank(const char* operation, const char* role, int other) const;
  /// Throws UsageError if the arguments of a message are invalid.
  void check_message(const char* operation, const P2POp& message) const;

  /// The group's NCCL backend; null if it has none.
  c10::intrusive_ptr<c10d::Backend> nccl_backend() const;
  /// Takes part in the split of NCCL's communicator for a group without this rank.
  void sit_out_split(const NcclParent& parent) const;
  /// How the NCCL communicators of the group and its subgroups end.
  comm::NcclCommunicators::End nccl_end(const Connections& made) const;

  GroupInfo members;
  std::string path;                        // "world", "world/sub/1": unique, and the same on all ranks.
  std::shared_ptr<const std::string> who;  // Used by operations, which may outlive the group.
  ProcessGroupOptions options;
  bool is_outermost;
  Store root;  // Of the outermost group: its keys without those of a generation.
  std::shared_ptr<Family> family;
  std::unique_ptr<Connections> connections;
  std::atomic<std::int64_t> groups{0};
  std::atomic<std::int64_t> namespaces{0};
  std::atomic<std::uint64_t> generation{1};
  std::uint64_t attempted = 1;  // The newest generation that was tried.
  /// Guards what abort() needs in another thread: the reason, and the connections while they are replaced.
  mutable std::mutex abort_mutex;
  std::string abort_reason;  // Empty: not aborted.

 private:
  struct Rebuilt;
  void check_can_reform(std::uint64_t wanted) const;
  void check_layout(const Connections& made) const;
  std::vector<Rebuilt> rebuild(std::uint64_t wanted);
  void replace_connections(std::vector<Rebuilt>& rebuilt, std::uint64_t wanted);
};

template <class Start>
Work ProcessGroup::Impl::launch(const char* name, const at::Tensor& tensor, const Start& start,
                                std::function<void()> finish) {
  WorkDescription description{.name = name, .number = 0, .who = who, .tensor = tensor};
  auto work =
      comm::translated([&] { return start(backend_of(tensor)); }, [&] { return description.describe(); });
  description.number = static_cast<std::int64_t>(work->getSequencenumber());
  return Work(std::make_shared<Work::Impl>(std::move(work), std::move(description), std::move(finish)));
}

/// Waits for the work that the device was given. CUDA's own call has no timeout, and a kernel that waits for
/// a lost rank never ends: throws TimeoutError, with `who` and the device, after `limit`.
void wait_for_device(const std::string& who, const at::Device& device, std::chrono::milliseconds limit);

}  // namespace lockstep
