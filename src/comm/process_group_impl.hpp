#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "comm/backend/cpu_backend.hpp"
#include "comm/cuda/nccl_communicators.hpp"
#include "comm/diagnostics/operation_tracker.hpp"
#include "comm/store_barrier.hpp"
#include "comm/work_impl.hpp"
#include "lockstep/comm/process_group.hpp"

namespace lockstep {

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

  /// Starts an operation; `finish` runs when it has succeeded.
  template <class Start>
  Work launch(const char* name, const at::Tensor& tensor, Start&& start,
              std::function<void()> finish = nullptr);

  /// What carries tensors on that device.
  c10d::Backend& carrier_of(const at::Tensor& tensor) const;
  /// Where the thread that calls does the operation itself; null where it cannot.
  comm::CpuBackend* inline_carrier_of(const at::Tensor& tensor) const;
  /// Throws UsageError unless `other` is a rank of this group. `role` names it in the text.
  void check_rank(const char* operation, const char* role, int other) const;
  /// Throws UsageError unless `tensors` has one entry a rank.
  void check_count(const char* operation, const char* role, const std::vector<at::Tensor>& tensors) const;
  /// Throws UsageError unless all of a batch can start.
  void check_batch(const std::vector<P2POp>& operations) const;
  /// How the NCCL communicators of the group and its parts end.
  comm::NcclCommunicators::End nccl_end() const;
  /// The device on which objects travel.
  at::Device object_device() const;

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
