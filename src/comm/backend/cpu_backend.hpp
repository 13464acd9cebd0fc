#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>
#include <vector>

#include "comm/backend/failed_operation.hpp"
#include "comm/backend/operation_queue.hpp"
#include "comm/diagnostics/operation_tracker.hpp"
#include "comm/transport/transport.hpp"

namespace lockstep::shm {
class Heap;
}

namespace lockstep {
class ProcessGroup;
}

namespace lockstep::comm {

/// Copies GPU tensors to the host; CPU tensors are used as they are. A copy waits for the calling thread's
/// current stream.
class HostStaging {
 public:
  at::Tensor of(const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.is_cpu()) return tensor;
    pairs_.emplace_back(tensor, tensor.cpu());
    return pairs_.back().second;
  }
  std::vector<at::Tensor> of(const std::vector<at::Tensor>& tensors) {
    std::vector<at::Tensor> copies;
    copies.reserve(tensors.size());
    for (const auto& tensor : tensors) copies.push_back(of(tensor));
    return copies;
  }

  void copy_back() const {
    for (const auto& [tensor, copy] : pairs_) tensor.detach().copy_(copy);
  }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs_;
};

/// c10d's interface to the transport of a group's CPU tensors. Every collective is recorded, verified and run
/// through enqueue(), or through all_reduce_now() if the caller waits for it immediately. It runs in the
/// thread that waits for it or in a worker. Once one has failed on this rank, those behind it are not run:
/// see FailedOperation. GPU tensors are copied through the host.
class CpuBackend final : public c10d::Backend {
 public:
  using WorkPointer = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<Tensors>;
  using Splits = std::vector<std::int64_t>;
  using Run = std::function<void(Transport&)>;

  /// `cpu`: CPU of the worker; -1: any.
  CpuBackend(int rank, int size, std::unique_ptr<Transport> transport,
             std::shared_ptr<OperationTracker> tracker, int cpu);
  /// Waits for operations in flight, then leaves the group.
  ~CpuBackend() override;

  const std::string getBackendName() const override { return transport_->name(); }
  const Transport& transport() const { return *transport_; }
  /// Passes operations through another transport, which passes them on to the present one: for tests that let
  /// operations fail. Before the next operation begins.
  template <class Wrap>
  void wrap_transport(const Wrap& wrap) {
    transport_ = wrap(std::move(transport_));
  }

  /// Ends all operations that are queued or under way, and all later ones, with a CommunicationError that
  /// says why. Does not wait; the first call counts. Any thread.
  void abort(const std::string& reason) {
    tracker_->abort(reason);
    transport_->abort(reason);
  }

  /// Whether an operation has failed on this rank, so that no other one runs.
  bool has_failed() const noexcept { return failed_->any(); }
  /// How many operations this rank has begun in the group, its subgroups and the groups around it.
  std::uint64_t operations() const { return tracker_->operations(); }
  /// Null unless lost ranks may be replaced.
  const std::shared_ptr<SetUpRecord>& set_up() const noexcept { return tracker_->set_up(); }

  /// allreduce() of one tensor in the calling thread; returns when it is done. Creates no Work, which would
  /// take as long as a small operation itself.
  void all_reduce_now(const at::Tensor& tensor, const c10d::ReduceOp& op);

  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPointer allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPointer allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPointer allgather(TensorLists& outputs, Tensors& inputs,
                        const c10d::AllgatherOptions& options) override;
  WorkPointer allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                  const c10d::AllgatherOptions& options) override;
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input,
                              const c10d::AllgatherOptions& options) override;
  WorkPointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) override;
  WorkPointer gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPointer scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override;
  WorkPointer reduce_scatter(Tensors& outputs, TensorLists& inputs,
                             const c10d::ReduceScatterOptions& options) override;
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::ReduceScatterOptions& options) override;
  WorkPointer reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::ReduceScatterOptions& options) override;
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input, Splits& output_splits,
                            Splits& input_splits, const c10d::AllToAllOptions& options) override;
  /// Accepts tensors of any shapes and strides.
  WorkPointer alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPointer barrier(const c10d::BarrierOptions& options) override;
  WorkPointer send(Tensors& tensors, int destination, int tag) override;
  WorkPointer recv(Tensors& tensors, int source, int tag) override;
  WorkPointer recvAnysource(Tensors& tensors, int tag) override;

  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override { return operations_.load(); }

 private:
  /// Fills in `meta`'s reduction and root from c10d's `options`. `body`: a TensorCollective, or more than one
  /// with what belongs to them; it holds the tensors that it uses.
  template <class CallOptions>
  WorkPointer enqueue(c10d::OpType type, OpMeta meta, const CallOptions& options, Tensors outputs,
                      HostStaging copies, Run body, const RowCounts* rows = nullptr);
  /// Sums sparse tensors by gathering their nonzero values; every rank adds them in rank order, as c10d's
  /// Gloo does. Throws UsageError for another reduction. The returned function may run in any thread.
  static Run sparse_all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& op, int size);
  WorkPointer start_message(c10d::OpType type, OpMeta meta, Tensors& tensors, int peer, int tag);

  std::shared_ptr<Transport> transport_;
  std::shared_ptr<OperationTracker> tracker_;
  std::shared_ptr<FailedOperation> failed_ = std::make_shared<FailedOperation>();
  std::shared_ptr<OperationQueue> queue_;
  std::shared_ptr<OperationQueue> message_waits_;  // One worker per message that is waited for.
  std::atomic<std::uint64_t> operations_{0};
};

/// The shared memory of this rank in a group; null if the group's CPU tensors do not use shared memory. Lives
/// as long as the group.
shm::Group* shared_memory_of(c10d::ProcessGroup& group) noexcept;

/// The heap of this rank in a group whose CPU tensors use shared memory; null otherwise.
std::shared_ptr<shm::Heap> shared_heap_of(c10d::ProcessGroup& group);

/// What serves the CPU operations of a group; null if it is none of these. Lives as long as the group.
const CpuBackend* cpu_backend_of(const ProcessGroup& group);

}  // namespace lockstep::comm
