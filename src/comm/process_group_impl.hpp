#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "comm/backend/cpu_backend.hpp"
#include "comm/cuda/nccl_communicators.hpp"
#include "comm/diagnostics/operation_tracker.hpp"
#include "comm/store_session.hpp"
#include "lockstep/comm/process_group.hpp"

namespace lockstep {

namespace comm {

/// Starts all of a batch so that the order of its operations, on this rank and on the others, does not
/// matter. A backend that coalesces (NCCL) makes one operation of it; the others get receives first, and what
/// has come is taken before each send, which may wait for room at the receiver. *Local*.
std::vector<c10::intrusive_ptr<c10d::Work>> start_batch(c10d::Backend& backend,
                                                        const std::vector<P2POp>& operations);

}  // namespace comm

/// Which operation a Work is, kept small because it is only put into words when the operation fails.
struct Operation {
  const char* name;
  /// Counts the group's collectives, or messages, from 1; equal on all ranks that call in the same order. 0:
  /// not started yet.
  std::int64_t number;
  std::shared_ptr<const std::string> who;
  at::Tensor tensor;

  std::string describe() const;
};

/// Something to wait for, and what to do with it then.
class Work::Impl {
 public:
  c10::intrusive_ptr<c10d::Work> work;
  Operation operation;
  /// Runs once, in the thread of the first wait(), when the operation has succeeded.
  std::function<void()> finish;
  std::mutex mutex = {};
  bool waited = false;
};

/// What other ranks can see of this one.
struct Connections {
  std::shared_ptr<comm::Diagnostics> diagnostics;  // Goes last: it says that this rank leaves.
  Store origin;                                    // On rank 0 it may be the server, which a clone is not.
  Store store;                                     // With the group's key prefix.
  comm::StoreBarrier barrier;
  std::shared_ptr<c10d::ProcessGroup> group;
  comm::CpuBackend* cpu = nullptr;  // Of the group; null where it carries no CPU tensors.
  /// Shared with the group's parts; null without NCCL.
  std::shared_ptr<comm::NcclCommunicators> nccl = nullptr;
};

/// What a part of a group has of the group for NCCL.
struct NcclParent {
  std::shared_ptr<comm::NcclCommunicators> communicators = nullptr;
  /// What its communicator is split from; null: it makes one of its own.
  c10::intrusive_ptr<c10d::Backend> backend = {};
  int color = 0;
  /// Returns when all ranks of the group are about to split and nothing of theirs is queued: a split waits
  /// without limit for a rank that does not come, and must not run beside another operation of the group's
  /// communicator.
  std::function<void()> meet = nullptr;
};

struct ProcessGroup::Impl {
  /// `origin` is the store that the program gave, `group_store` the same under this group's key prefix. A
  /// part of a group has its `diagnostics`; the outermost group makes them.
  Impl(const comm::GroupInfo& group_members, std::string group_path, const Store& origin,
       const Store& group_store, const ProcessGroupOptions& group_options,
       std::shared_ptr<comm::Diagnostics> group_diagnostics = nullptr, const NcclParent& nccl_parent = {});
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// What carries the group's CPU tensors.
  c10::intrusive_ptr<comm::CpuBackend> make_cpu_backend(const Store& store,
                                                        std::shared_ptr<comm::Diagnostics> diagnostics) const;
  /// Starts an operation by `start(backend)`; `finish` runs when it has succeeded.
  template <class Start>
  Work launch(const char* name, const at::Tensor& tensor, const Start& start,
              std::function<void()> finish = nullptr);

  /// What carries tensors on that device.
  c10d::Backend& carrier_of(const at::Tensor& tensor) const;
  /// Throws UsageError unless `other` is a rank of this group. `role` names it in the text.
  void check_rank(const char* operation, const char* role, int other) const;
  /// Throws UsageError unless a message can start.
  void check_message(const char* operation, const P2POp& message) const;
  /// How the NCCL communicators of the group and its parts end.
  comm::NcclCommunicators::End nccl_end() const;

  comm::GroupInfo members;
  std::string path;                        // "world", "world/1": the same on all ranks, and no other group's.
  std::shared_ptr<const std::string> who;  // For operations, which may outlive the group.
  ProcessGroupOptions options;
  bool is_outermost;
  std::unique_ptr<Connections> connections;
  std::atomic<std::int64_t> groups{0};
  std::atomic<std::int64_t> namespaces{0};
};

}  // namespace lockstep
